"""A small GPT-2 of transformers, trained by its Trainer.

torchrun --nproc-per-node 2 examples/frameworks/with_trainer.py
testbed run --ranks 8 --network dgx-h100 --compute h100 examples/frameworks/with_trainer.py
"""

import argparse
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments


class Printing(TrainerCallback):
    """Prints the loss of every step, on rank 0."""

    def on_log(self, args, state, control, logs=None, **kwargs):
        """Print the loss that has been logged, which is the mean over ranks."""
        if state.is_world_process_zero and "loss" in logs:
            print(f"step {state.global_step - 1}: loss {float(logs['loss']):.6f}")


parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=16)
parser.add_argument("--batch", type=int, default=2, help="of each rank")
parser.add_argument("--steps", type=int, default=6)
args = parser.parse_args()

torch.manual_seed(0)
model = GPT2LMHeadModel(
    GPT2Config(
        n_layer=2,
        n_head=2,
        n_embd=args.width,
        vocab_size=64,
        n_positions=16,
        bos_token_id=0,
        eos_token_id=0,
        resid_pdrop=0,
        embd_pdrop=0,
        attn_pdrop=0,
        loss_type="ForCausalLM",
    )
)
tokens = torch.randint(0, 64, (256, 16))
with tempfile.TemporaryDirectory() as folder:
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=folder,
            max_steps=args.steps,
            per_device_train_batch_size=args.batch,
            learning_rate=0.003,
            logging_steps=1,
            report_to=[],
            save_strategy="no",
            disable_tqdm=True,
            use_cpu=not torch.cuda.is_available(),
        ),
        train_dataset=[{"input_ids": row, "labels": row} for row in tokens],
        callbacks=[Printing()],
    )
    trainer.train()
