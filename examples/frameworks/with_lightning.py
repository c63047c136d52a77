"""A Lightning module, which its Trainer trains with DDP, or with FSDP where there are CUDA devices.

torchrun --nproc-per-node 2 examples/frameworks/with_lightning.py
testbed run --ranks 8 --network dgx-h100 --compute h100 examples/frameworks/with_lightning.py --strategy fsdp
"""

import argparse
import os

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Model(lightning.LightningModule):
    """Two layers, which learn to turn their input around."""

    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def training_step(self, batch, step):
        """Return the loss of this rank's part of a batch, and print that of the whole."""
        x, y = batch
        loss = nn.functional.mse_loss(self.layers(x), y)
        mean = self.all_gather(loss.detach()).mean()
        self.print(f"step {step}: loss {mean.item():.6f}")
        return loss

    def configure_optimizers(self):
        """Return the optimizer."""
        return torch.optim.AdamW(self.parameters(), lr=0.003)


parser = argparse.ArgumentParser()
parser.add_argument("--strategy", default="ddp", choices=["ddp", "fsdp"])
parser.add_argument("--width", type=int, default=16)
parser.add_argument("--batch", type=int, default=4, help="of each rank")
parser.add_argument("--steps", type=int, default=6)
args = parser.parse_args()

local = int(os.environ["LOCAL_WORLD_SIZE"])
num_ranks = int(os.environ["WORLD_SIZE"])
lightning.seed_everything(0)
inputs = torch.randn(args.steps * args.batch * num_ranks, args.width)
trainer = lightning.Trainer(
    strategy=args.strategy,
    devices=local,
    num_nodes=num_ranks // local,
    max_epochs=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Model(args.width), DataLoader(TensorDataset(inputs, inputs.flip(1)), batch_size=args.batch))
