"""Llama 3.1 8B as torchtitan trained it in December 2024: FSDP2, every second product computed again.

It prints what torchtitan's logs say, ``reserved_bytes.all.peak``: 82.4 GiB on 8 GPUs, and 67.0 GiB on 128
(pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, tables 1 and 3, eager, two sequences).

PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True testbed run --fake --ranks 8 --network dgx-h100 \
    --compute h200 benchmarks/llama_memory.py
"""

import argparse
from collections import Counter
from functools import partial

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

WIDTH, LAYERS, HEADS, KV_HEADS, INNER, VOCABULARY = 4096, 32, 32, 8, 14336, 128256
HEAD = WIDTH // HEADS

aten = torch.ops.aten
SAVED = {
    aten.mm.default,
    aten._scaled_dot_product_efficient_attention.default,
    aten._scaled_dot_product_flash_attention.default,
}

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=2, help="sequences of each rank")
parser.add_argument("--seq-len", type=int, default=8192)
parser.add_argument("--ac", choices=["op", "full", "none"], default="op")
parser.add_argument("--steps", type=int, default=3)
args = parser.parse_args()


class Norm(nn.Module):
    """A norm of operations one by one, in 32 bits."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        """Return x of unit mean square, times a weight for each channel."""
        wide = x.float()
        return (wide * torch.rsqrt((wide * wide).mean(-1, keepdim=True) + 1e-5)).type_as(x) * self.weight


def rotated(x, angles):
    """Return heads turned by complex numbers."""
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * angles[:, None]).flatten(3).type_as(x)


class Attention(nn.Module):
    """Attention whose keys and values are repeated for all heads of queries."""

    def __init__(self):
        super().__init__()
        linear = partial(nn.Linear, bias=False)
        self.wq, self.wo = linear(WIDTH, WIDTH), linear(WIDTH, WIDTH)
        self.wk, self.wv = (linear(WIDTH, KV_HEADS * HEAD) for _ in range(2))

    def forward(self, x, angles):
        """Return what each token reads of those before it."""
        q, k, v = (w(x).unflatten(-1, (-1, HEAD)) for w in (self.wq, self.wk, self.wv))
        q, k = rotated(q, angles), rotated(k, angles)
        k, v = (t[:, :, :, None].expand(-1, -1, -1, HEADS // KV_HEADS, -1).flatten(2, 3) for t in (k, v))
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        read = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(read.transpose(1, 2).contiguous().flatten(2))


class FeedForward(nn.Module):
    """Two layers, the first with a gate."""

    def __init__(self):
        super().__init__()
        self.w1, self.w3 = (nn.Linear(WIDTH, INNER, bias=False) for _ in range(2))
        self.w2 = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x):
        """Return what each token makes of itself."""
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    """A layer of the model."""

    def __init__(self):
        super().__init__()
        self.norm1, self.attention, self.norm2, self.feed_forward = Norm(), Attention(), Norm(), FeedForward()

    def forward(self, x, angles):
        """Return x with what attention and the feed-forward layers add."""
        x = x + self.attention(self.norm1(x), angles)
        return x + self.feed_forward(self.norm2(x))


class Llama(nn.Module):
    """The model."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(checkpointed(Block()) for _ in range(LAYERS))
        self.norm, self.output = Norm(), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.register_buffer("angles", torch.empty(args.seq_len, HEAD // 2, dtype=torch.complex64))

    def forward(self, tokens):
        """Return logits of tokens (batch, tokens)."""
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.angles)
        return self.output(self.norm(x))


def every_second_product():
    """Return contexts that keep attention and every second product of a layer, and compute the rest again."""
    products = Counter()

    def choose(context, func, *given, **options):
        if func is aten.mm.default:
            products[context.is_recompute] += 1
            if products[context.is_recompute] % 2 == 0:
                return CheckpointPolicy.PREFER_RECOMPUTE
        return CheckpointPolicy.MUST_SAVE if func in SAVED else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(choose)


def checkpointed(block):
    """Return a layer that computes again what --ac says."""
    if args.ac == "none":
        return block
    selective = {"context_fn": every_second_product} if args.ac == "op" else {}
    return checkpoint_wrapper(block, preserve_rng_state=False, **selective)


dist.init_process_group("nccl")
torch.cuda.set_device(dist.get_rank() % torch.cuda.device_count())
mesh = init_device_mesh("cuda", (dist.get_world_size(),))
with torch.device("meta"):
    model = Llama()
options = {"mesh": mesh, "mp_policy": MixedPrecisionPolicy(torch.bfloat16, torch.float32)}
for number, block in enumerate(model.blocks):
    fully_shard(block, **options, reshard_after_forward=number < LAYERS - 1)
fully_shard(model, **options)
model.to_empty(device="cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=False, foreach=True)

torch.cuda.empty_cache()
torch.cuda.reset_peak_memory_stats()
for _ in range(args.steps):
    tokens, labels = (
        torch.zeros(args.batch, args.seq_len, dtype=torch.long, device="cuda") for _ in range(2)
    )
    optimizer.zero_grad()
    logits = model(tokens)
    loss = F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(0, 1))
    del logits
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
    optimizer.step()

statistics = torch.cuda.memory_stats()
if dist.get_rank() == 0:
    for name in ("reserved_bytes", "active_bytes", "allocated_bytes"):
        print(f"{name}: {statistics[f'{name}.all.peak'] / 2**30:.1f} GiB at most")
dist.destroy_process_group()
