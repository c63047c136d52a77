"""Llama 3 of any size: FSDP2 (or HSDP), tensor and sequence parallelism, pipelines, checkpointed activations.

torchrun --nproc-per-node 4 examples/llama.py --model debug --tp 2
testbed run --ranks 8 --network dgx-h100 examples/llama.py --model debug --pp 2 --tp 2
"""

import argparse
import time
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.distributed.tensor.parallel as tp
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import get_schedule_class
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor._random import manual_seed
from torch.utils.checkpoint import checkpoint

SIZES = {  # width, layers, heads, heads of keys and values, width of the feed-forward layer, tokens
    "debug": (64, 4, 8, 4, 192, 256),
    "1b": (2048, 16, 32, 8, 8192, 128256),
    "8b": (4096, 32, 32, 8, 14336, 128256),
    "70b": (8192, 80, 64, 8, 28672, 128256),
    "405b": (16384, 126, 128, 8, 53248, 128256),
}
ONE_STAGE, IN_LOOPS = ("1f1b", "gpipe"), ("interleaved1f1b", "interleavedzerobubble")  # torch's names
THERE_AND_BACK = ("zbvzerobubble", "dualpipev")  # two stages: the first rank has the last one, too
SCHEDULES = (*ONE_STAGE, *IN_LOOPS, *THERE_AND_BACK)
PEAK = {"A100": 312e12, "H100": 989.4e12, "H200": 989.4e12, "B200": 2250e12}  # FLOP/s in 16 bits, dense

parser = argparse.ArgumentParser()
parser.add_argument("--model", choices=SIZES, default="debug")
parser.add_argument("--backend", help="default: nccl on GPUs, else gloo")
parser.add_argument("--pp", type=int, default=1, help="ranks of a pipeline, each with one stage or two")
parser.add_argument("--tp", type=int, default=1, help="ranks that share each layer, and its sequences")
parser.add_argument("--fsdp", type=int, help="ranks that share parameters; default: all others")
parser.add_argument("--schedule", type=str.lower, choices=SCHEDULES, default="1f1b")
parser.add_argument("--ac", action="store_true", help="compute the activations of a layer again")
parser.add_argument("--compile", action="store_true")
parser.add_argument("--seq-len", type=int, help="default: 8192, debug 64")
parser.add_argument("--batch", type=int, help="sequences of each model; default: 1, in pipelines 4 a rank")
parser.add_argument("--steps", type=int, default=3)
parser.add_argument("--lr", type=float, default=3e-4)
args = parser.parse_args()
width, num_layers, heads, kv_heads, inner, vocabulary = SIZES[args.model]
head, kv_width = width // heads, kv_heads * width // heads
seq_len = args.seq_len or (64 if args.model == "debug" else 8192)
batch = args.batch or (4 * args.pp if args.pp > 1 else 1)
num_stages = args.pp if args.pp == 1 or args.schedule in ONE_STAGE else 2 * args.pp


class Attention(nn.Module):
    """Attention to the tokens before, with fewer heads of keys and values than of queries."""

    def __init__(self):
        super().__init__()
        self.wq, self.wo = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.wk, self.wv = nn.Linear(width, kv_width, bias=False), nn.Linear(width, kv_width, bias=False)

    def forward(self, x, cos, sin):
        """Return what each token of x (batch, tokens, width) reads of those before it."""
        q, k, v = (w(x).unflatten(-1, (-1, head)).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        q, k = rotated(q, cos, sin), rotated(k, cos, sin)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.wo(out.transpose(1, 2).flatten(2))


def rotated(x, cos, sin):
    """Return heads with each pair of channels turned by its token's angle."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)


class FeedForward(nn.Module):
    """Two layers, the first with a gate."""

    def __init__(self):
        super().__init__()
        self.w1, self.w3 = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.w2 = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        """Return what each token makes of itself."""
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Block(nn.Module):
    """A layer of the model."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention, self.feed_forward = Attention(), FeedForward()

    def body(self, x, cos, sin):
        """Return x with what attention and the feed-forward layers add."""
        x = x + self.attention(self.norm1(x), cos, sin)
        return x + self.feed_forward(self.norm2(x))

    def forward(self, *given):
        """Return `body`, of which only the input is kept for the backward pass with ``--ac``."""
        return checkpoint(self.body, *given, use_reentrant=False) if args.ac else self.body(*given)


class Llama(nn.Module):
    """One stage's layers of the model: the first has the embedding besides, and the last the output."""

    def __init__(self, stage):
        super().__init__()
        self.stage = stage
        is_first, is_last = stage == 0, stage == num_stages - 1
        self.embedding = nn.Embedding(vocabulary, width) if is_first else None
        layers = range(num_layers * stage // num_stages, num_layers * (stage + 1) // num_stages)
        self.blocks = nn.ModuleList(Block() for _ in layers)
        self.norm = nn.RMSNorm(width) if is_last else None
        self.output = nn.Linear(width, vocabulary, bias=False) if is_last else None

    def initialize(self, device):
        """Take memory and fill it, the same however ranks have stages: until now it was without."""
        torch.manual_seed(self.stage)
        self.to_empty(device=device)
        for name, parameter in self.named_parameters():
            nn.init.ones_(parameter) if "norm" in name else nn.init.normal_(parameter, std=0.02)
        angles = torch.outer(torch.arange(seq_len), 500000.0 ** -(torch.arange(0, head, 2) / head)).to(device)
        self.angles = angles.cos(), angles.sin()

    def forward(self, x):
        """Return logits of tokens (batch, tokens), or what goes from stage to stage."""
        x = self.embedding(x) if self.embedding is not None else x
        for block in self.blocks:
            x = block(x, *self.angles)
        return self.output(self.norm(x)) if self.output is not None else x


def shard(model, mesh):
    """Share each layer among ranks by tensor and sequence parallelism, and all parameters by FSDP2."""
    tokens, channels, whole = Shard(1), Shard(-1), Replicate()
    columns, rows = tp.ColwiseParallel(), tp.RowwiseParallel(output_layouts=tokens)
    norm = tp.SequenceParallel()
    ends = {
        "embedding": tp.RowwiseParallel(input_layouts=whole, output_layouts=tokens),
        "norm": norm,
        "output": tp.ColwiseParallel(input_layouts=tokens, output_layouts=channels, use_local_output=False),
    }
    layers = {
        **dict.fromkeys(("norm1", "norm2"), norm),
        "attention": tp.PrepareModuleInput(
            input_layouts=(tokens, None, None), desired_input_layouts=(whole, None, None)
        ),
        "feed_forward": tp.PrepareModuleInput(input_layouts=tokens, desired_input_layouts=whole),
        **dict.fromkeys(("attention.wq", "attention.wk", "attention.wv"), columns),
        **dict.fromkeys(("feed_forward.w1", "feed_forward.w3"), columns),
        **dict.fromkeys(("attention.wo", "feed_forward.w2"), rows),
    }
    options = {
        "mesh": mesh["shard"] if mesh["replicate"].size() == 1 else mesh["replicate", "shard"],
        "mp_policy": MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False),
        "reshard_after_forward": args.pp == 1,  # a pipeline would gather parameters for each sequence
    }
    if args.tp > 1:
        here = {name: style for name, style in ends.items() if getattr(model, name) is not None}
        tp.parallelize_module(model, mesh["tp"], here)
    for block in model.blocks:
        if args.tp > 1:
            tp.parallelize_module(block, mesh["tp"], layers)
        if args.compile:
            block.compile()
        fully_shard(block, **options)
    fully_shard(model, **options)


def loss_of(logits, targets):
    """Return the mean loss of a batch."""
    loss = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
    return loss.to_local().clone() if args.tp > 1 else loss  # schedules detach it in place


def sequences(step):
    """Return this rank's batch: each sequence counts upwards from a random token."""
    generator = torch.Generator().manual_seed(step * models + model_number)
    first = torch.randint(vocabulary, (batch, 1), generator=generator)
    return ((first + torch.arange(seq_len + 1)) % vocabulary).to(device)


def clip(parameters):
    """Scale gradients to a norm of at most 1, that of all stages together."""
    norm = nn.utils.get_total_norm([p.grad for p in parameters]).full_tensor()
    if args.pp > 1:
        squares = norm**2
        dist.all_reduce(squares, group=mesh["pp"].get_group())
        norm = squares.sqrt()
    nn.utils.clip_grads_with_norm_(parameters, 1.0, norm)


on_gpu = torch.cuda.is_available() and args.backend != "gloo"
dist.init_process_group(args.backend or ("nccl" if on_gpu else "gloo"))
rank, world_size = dist.get_rank(), dist.get_world_size()
device = torch.device("cuda", rank % torch.cuda.device_count()) if on_gpu else torch.device("cpu")
models = world_size // (args.pp * args.tp)  # each computes sequences of its own
sharded = args.fsdp or models
shape, names = (args.pp, models // sharded, sharded, args.tp), ("pp", "replicate", "shard", "tp")
if on_gpu:
    torch.cuda.set_device(device)
mesh = init_device_mesh(device.type, shape, mesh_dim_names=names)
place, model_number = mesh["pp"].get_local_rank(), rank // args.tp % models
stages = [place]
if num_stages > args.pp:
    stages.append(args.pp + place if args.schedule in IN_LOOPS else num_stages - 1 - place)
is_first, is_last = 0 in stages, num_stages - 1 in stages

if on_gpu:
    manual_seed(0, mesh)  # else all ranks exchange the states of their generators
with torch.device("meta"):
    chunks = [Llama(stage) for stage in stages]
for chunk in chunks:
    shard(chunk, mesh)
    chunk.initialize(device)
parameters = [parameter for chunk in chunks for parameter in chunk.parameters()]
if not parameters:
    asked = f"--pp {args.pp} --schedule {args.schedule}"
    raise ValueError(f"{asked}: rank {rank} has none of {num_layers} layers")
optimizer = torch.optim.AdamW(parameters, lr=args.lr, weight_decay=0.1, fused=True)
scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 3))
if args.pp > 1:
    group = mesh["pp"].get_group()
    own = [PipelineStage(chunk, chunk.stage, num_stages, device, group=group) for chunk in chunks]
    pipeline = get_schedule_class(args.schedule)(own if len(own) > 1 else own[0], batch, loss_of)

num_parameters = num_layers * width * (2 * width + 2 * kv_width + 3 * inner + 2) + width * (vocabulary + 1)
flops_per_token = 6 * num_parameters + 12 * num_layers * width * seq_len  # without the embedding
gpu = torch.cuda.get_device_name().upper() if on_gpu else ""
peak = next((peak for name, peak in PEAK.items() if name in gpu), None)
for step in range(args.steps):
    begin = time.perf_counter()
    tokens = sequences(step)
    inputs, targets, losses = tokens[:, :-1], tokens[:, 1:], []
    with tp.loss_parallel() if args.tp > 1 else nullcontext():
        if args.pp > 1:
            given = (inputs,) if is_first else ()
            pipeline.step(*given, **({"target": targets, "losses": losses} if is_last else {}))
        else:
            losses.append(loss_of(chunks[0](inputs), targets))
            losses[0].backward()
    clip(parameters)
    optimizer.step()
    scheduler.step()
    optimizer.zero_grad()

    loss = torch.stack(losses).mean().detach() if losses else torch.zeros((), device=device)
    dist.all_reduce(loss)
    loss = loss.item() / models / args.tp
    speed = batch * seq_len * models / world_size / (time.perf_counter() - begin)
    if rank == 0:
        mfu = f", MFU {speed * flops_per_token / peak:.1%}" if peak else ""
        print(f"step {step}: loss {loss:.6f}, {speed:,.0f} tokens/s/GPU{mfu}", flush=True)
dist.destroy_process_group()
