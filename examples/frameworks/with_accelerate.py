"""A training loop with Hugging Face Accelerate: it wraps the model in DDP and gives each rank its batches.

torchrun --nproc-per-node 2 examples/frameworks/with_accelerate.py
testbed run --ranks 8 --network dgx-h100 --compute h100 examples/frameworks/with_accelerate.py
"""

import argparse

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=16)
parser.add_argument("--batch", type=int, default=4, help="of each rank")
parser.add_argument("--steps", type=int, default=6)
args = parser.parse_args()

accelerator = Accelerator(cpu=not torch.cuda.is_available())
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(args.width, 4 * args.width), nn.GELU(), nn.Linear(4 * args.width, args.width))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
inputs = torch.randn(args.steps * args.batch * accelerator.num_processes, args.width)
batches = DataLoader(TensorDataset(inputs, inputs.flip(1)), batch_size=args.batch)
model, optimizer, batches = accelerator.prepare(model, optimizer, batches)

for step, (x, y) in enumerate(batches):
    loss = nn.functional.mse_loss(model(x), y)
    optimizer.zero_grad()
    accelerator.backward(loss)
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    mean = accelerator.gather(loss.detach()).mean()
    accelerator.print(f"step {step}: loss {mean.item():.6f}")
accelerator.end_training()
