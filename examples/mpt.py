"""MPT as llm-foundry trains it, in plain torch: FSDP2, mixed precision, activations checkpointed or not.

torchrun --nproc-per-node 2 examples/mpt.py --seq-len 128
testbed run --ranks 2 --network dgx-h100 examples/mpt.py --seq-len 128

Learned positions, biases, layers of four times the width, an embedding that is the output's weight, too.
With --precision amp_bf16 parameters are gathered and computed with in 16 bits and gradients reduced in 32
(composer's mixed precision DEFAULT), with bf16 reduced in 16, too (PURE); with amp_fp8 the layers of a block
multiply in 8 bits. Sizes are those of llm-foundry's scripts/train/benchmarking/README.md.
"""

import argparse
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import checkpoint

SIZES = {  # width, heads, layers
    "debug": (64, 4, 2),
    "mpt-125m": (768, 12, 12),
    "mpt-350m": (1024, 16, 24),
    "mpt-1b": (2048, 16, 24),
    "mpt-3b": (2560, 20, 32),
    "mpt-7b": (4096, 32, 32),
    "mpt-13b": (5120, 40, 40),
    "mpt-30b": (7168, 56, 48),
    "mpt-70b": (8192, 64, 80),
}
REDUCED_IN = {"amp_bf16": torch.float32, "bf16": torch.bfloat16, "amp_fp8": torch.float32}

parser = argparse.ArgumentParser()
parser.add_argument("--model", choices=SIZES, default="debug")
parser.add_argument("--vocabulary", type=int, default=50368)
parser.add_argument("--seq-len", type=int, default=2048)
parser.add_argument("--microbatch", type=int, default=1, help="sequences of a rank in one pass")
parser.add_argument("--accumulate", type=int, default=1, help="passes of a step")
parser.add_argument("--no-sync", action="store_true", help="reduce gradients in the last pass of a step only")
parser.add_argument("--checkpoint", action="store_true", help="compute the activations of a layer again")
parser.add_argument("--recompute-all", action="store_true", help="as torch's checkpoint did before 2.1")
parser.add_argument("--precision", choices=REDUCED_IN, default="amp_bf16")
parser.add_argument("--steps", type=int, default=3)


class Float8(torch.autograd.Function):
    """x @ weight.T, whose three products are in 8 bits, unscaled: this shows what they take."""

    @staticmethod
    def forward(ctx, x, weight):
        """Return the product, and keep both transposed."""
        rows, columns = x.flatten(0, -2).to(torch.float8_e4m3fn), weight.to(torch.float8_e4m3fn)
        ctx.save_for_backward(rows.t().contiguous(), columns.t().contiguous())
        return multiply(rows, columns.t()).unflatten(0, x.shape[:-1])

    @staticmethod
    def backward(ctx, gradient):
        """Return the gradients of x and of the weight."""
        rows, columns = ctx.saved_tensors
        outer = gradient.flatten(0, -2).to(torch.float8_e5m2)
        of_x = multiply(outer, columns.t())
        return of_x.unflatten(0, gradient.shape[:-1]), multiply(outer.t().contiguous(), rows.t())


def multiply(a, b):
    """Return a @ b in 16 bits, b stored by columns."""
    one = torch.ones((), device=a.device)
    return torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)


class Linear(nn.Linear):
    """A linear layer that multiplies in 8 bits with ``--precision amp_fp8``."""

    def forward(self, x):
        """Return the layer of x."""
        return Float8.apply(x, self.weight) + self.bias if args.precision == "amp_fp8" else super().forward(x)


class Block(nn.Module):
    """A layer of the model."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = Linear(width, 3 * width), Linear(width, width)
        self.up, self.down = Linear(width, 4 * width), Linear(4 * width, width)

    def body(self, x):
        """Return x (batch, tokens, width) with what attention and the feed-forward layers add."""
        qkv = self.qkv(self.norm1(x)).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in qkv)
        read = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(read.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))

    def forward(self, x):
        """Return `body`, of which only the input is kept for the backward pass with ``--checkpoint``."""
        if not args.checkpoint:
            return self.body(x)
        return checkpoint(self.body, x, use_reentrant=False, early_stop=not args.recompute_all)


class MPT(nn.Module):
    """The model."""

    def __init__(self, width, heads, layers):
        super().__init__()
        self.tokens = nn.Embedding(args.vocabulary, width)
        self.positions = nn.Embedding(args.seq_len, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens):
        """Return logits of tokens (batch, tokens)."""
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.tokens.weight)


args = parser.parse_args()
on_gpu = torch.cuda.is_available()
dist.init_process_group("nccl" if on_gpu else "gloo")
rank, world_size = dist.get_rank(), dist.get_world_size()
device = torch.device("cuda", rank % torch.cuda.device_count()) if on_gpu else torch.device("cpu")
if on_gpu:
    torch.cuda.set_device(device)
mesh = init_device_mesh(device.type, (world_size,))

torch.manual_seed(rank)
with torch.device("meta"):
    model = MPT(*SIZES[args.model])
precision = MixedPrecisionPolicy(torch.bfloat16, REDUCED_IN[args.precision], cast_forward_inputs=False)
for block in model.blocks:
    fully_shard(block, mesh=mesh, mp_policy=precision)
fully_shard(model, mesh=mesh, mp_policy=precision)
model.to_empty(device=device)
for name, parameter in model.named_parameters():
    if "bias" in name:
        nn.init.zeros_(parameter)
    elif "norm" in name:
        nn.init.ones_(parameter)
    else:
        nn.init.normal_(parameter, std=0.02)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95))

for step in range(args.steps):
    begin = time.perf_counter()
    for number in range(args.accumulate):
        tokens = torch.randint(args.vocabulary, (args.microbatch, args.seq_len)).to(device)
        model.set_requires_gradient_sync(not args.no_sync or number == args.accumulate - 1)
        targets = tokens.roll(-1, 1)
        targets[:, -1] = -100  # nothing comes after the last
        logits = model(tokens).flatten(0, 1).float()
        loss = F.cross_entropy(logits, targets.flatten()) / args.accumulate
        loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()

    last = loss.item() * args.accumulate
    speed = args.accumulate * args.microbatch * args.seq_len / (time.perf_counter() - begin)
    if rank == 0:
        print(f"step {step}: loss {last:.6f}, {speed:,.0f} tokens/s/GPU", flush=True)
dist.destroy_process_group()
