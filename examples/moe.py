"""A transformer with routed experts, such as Mixtral and DeepSeek: data, expert, tensor, pipeline parallel.

torchrun --nproc-per-node 4 examples/moe.py --model debug --ep 2
testbed run --fake --routing power-law:1.2 --ranks 64 --network dgx-h100 --compute h100 examples/moe.py
"""

import argparse
import time
from contextlib import nullcontext

import torch
import torch.distributed as dist
import torch.distributed.tensor.parallel as tp
import torch.nn.functional as F
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import get_schedule_class
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor._random import manual_seed
from torch.utils.checkpoint import checkpoint

SIZES = {  # width, layers, heads, heads of keys and values, tokens; experts: width, number, chosen, shared
    "debug": (64, 2, 4, 2, 256, 32, 8, 2, 1),
    "mixtral-8x7b": (4096, 32, 32, 8, 32000, 14336, 8, 2, 0),
    "deepseek-16b": (2048, 28, 16, 16, 102400, 1408, 64, 6, 2),
}
ONE_STAGE, IN_LOOPS = ("1f1b", "gpipe"), ("interleaved1f1b", "interleavedzerobubble")  # torch's names
THERE_AND_BACK = ("zbvzerobubble", "dualpipev")  # two stages: the first rank has the last one, too
SCHEDULES = (*ONE_STAGE, *IN_LOOPS, *THERE_AND_BACK)

parser = argparse.ArgumentParser()
parser.add_argument("--model", choices=SIZES, default="mixtral-8x7b")
parser.add_argument("--backend", help="default: nccl on GPUs, else gloo")
parser.add_argument("--ep", type=int, default=8, help="ranks that share the experts of each layer")
parser.add_argument("--tp", type=int, default=1, help="ranks that share all else of it, and its sequences")
parser.add_argument("--pp", type=int, default=1, help="ranks of a pipeline, each with one stage or two")
parser.add_argument("--schedule", type=str.lower, choices=SCHEDULES, default="1f1b")
parser.add_argument("--ac", action="store_true", help="compute the activations of a layer again")
parser.add_argument("--seq-len", type=int, help="default: 2048, debug 64")
parser.add_argument("--batch", type=int, help="sequences of each model; default: 1, in pipelines 4 a rank")
parser.add_argument("--steps", type=int, default=3)
parser.add_argument("--lr", type=float, default=3e-4)
parser.add_argument("--balance", type=float, default=0.01, help="weight of the loss of uneven routing")
args = parser.parse_args()
width, num_layers, heads, kv_heads, vocabulary, inner, num_experts, chosen, shared = SIZES[args.model]
head, local_experts = width // heads, num_experts // args.ep
seq_len = args.seq_len or (64 if args.model == "debug" else 2048)
batch = args.batch or (4 * args.pp if args.pp > 1 else 1)
num_stages = args.pp if args.pp == 1 or args.schedule in ONE_STAGE else 2 * args.pp


class Attention(nn.Module):
    """Attention to the tokens before, with fewer heads of keys and values than of queries."""

    def __init__(self):
        super().__init__()
        self.wq, self.wo = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.wk, self.wv = (nn.Linear(width, kv_heads * head, bias=False) for _ in range(2))

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
    """Two layers, the first with a gate: the experts that every token goes to."""

    def __init__(self, inner):
        super().__init__()
        self.w1, self.w3 = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.w2 = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        """Return what each token makes of itself."""
        return self.w2(F.silu(self.w1(x)) * self.w3(x))


class Experts(nn.Module):
    """This rank's experts, each of which is a `FeedForward`."""

    def __init__(self):
        super().__init__()
        self.w1, self.w3 = (nn.Parameter(torch.empty(local_experts * width, inner)) for _ in range(2))
        self.w2 = nn.Parameter(torch.empty(local_experts * inner, width))  # FSDP shards along the first

    def forward(self, rows, ends):
        """Return what rows make of themselves, of which those of each expert end at *ends*."""
        w1, w3, w2 = (w.unflatten(0, (local_experts, -1)) for w in (self.w1, self.w3, self.w2))
        gates, values = (torch._grouped_mm(rows, w, offs=ends) for w in (w1, w3))
        return torch._grouped_mm(F.silu(gates) * values, w2, offs=ends)


class WithLoss(torch.autograd.Function):
    """The first of two, in whose backward pass the second counts as a loss."""

    forward = staticmethod(lambda ctx, x, loss: x.view_as(x))
    backward = staticmethod(lambda ctx, grad: (grad, grad.new_ones((), dtype=torch.float32)))


class Routed(nn.Module):
    """Experts of all ranks, to some of which each token is sent."""

    def __init__(self):
        super().__init__()
        self.gate, self.experts = nn.Linear(width, num_experts, bias=False), Experts()
        self.shared = FeedForward(shared * inner) if shared else None

    def forward(self, x):
        """Return what the experts make of each token, weighed by its probability of being theirs."""
        probabilities = self.gate(x).flatten(0, 1).softmax(-1, dtype=torch.float32)
        weights, experts = probabilities.topk(chosen)
        counts = experts.flatten().bincount(minlength=num_experts)
        uneven = num_experts * (counts / counts.sum() * probabilities.mean(0)).sum()

        order = experts.flatten().argsort(stable=True)
        rows = x.flatten(0, 1)[order // chosen]
        arriving = torch.empty_like(counts)
        dist.all_to_all_single(arriving, counts, group=expert_group)
        leaving, arriving = counts.view(args.ep, -1), arriving.view(args.ep, -1)
        out_of, into = leaving.sum(1).tolist(), arriving.sum(1).tolist()
        rows = sent(rows, out_of, into)

        owners = torch.arange(num_experts, device=x.device) % local_experts
        by_expert = owners.repeat_interleave(arriving.flatten(), output_size=sum(into)).argsort(stable=True)
        rows = self.experts(rows[by_expert], arriving.sum(0).cumsum(0, dtype=torch.int32))
        rows = sent(rows[by_expert.argsort()], into, out_of)[order.argsort()]

        weights = weights / weights.sum(-1, keepdim=True)
        routed = (rows.unflatten(0, (-1, chosen)) * weights.unsqueeze(-1)).sum(1).to(x.dtype).view_as(x)
        routed = WithLoss.apply(routed, args.balance * uneven)
        return routed + self.shared(x) if shared else routed


def sent(rows, out_of, into):
    """Return the rows that arrive, so many from each rank, for those that leave."""
    return all_to_all_single_autograd(rows, into, out_of, expert_group)


class Block(nn.Module):
    """A layer of the model."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.attention, self.routed = Attention(), Routed()

    def body(self, x, cos, sin):
        """Return x with what attention and the experts add."""
        x = x + self.attention(self.norm1(x), cos, sin)
        return x + self.routed(self.norm2(x))

    def forward(self, *given):
        """Return `body`, of which only the input is kept for the backward pass with ``--ac``."""
        return checkpoint(self.body, *given, use_reentrant=False) if args.ac else self.body(*given)


class Model(nn.Module):
    """One stage's layers: the first has the embedding besides, and the last the output."""

    def __init__(self, stage):
        super().__init__()
        self.stage = stage
        is_first, is_last = stage == 0, stage == num_stages - 1
        self.embedding = nn.Embedding(vocabulary, width) if is_first else None
        layers = range(num_layers * stage // num_stages, num_layers * (stage + 1) // num_stages)
        self.blocks = nn.ModuleList(Block() for _ in layers)
        self.norm = nn.RMSNorm(width) if is_last else None
        self.output = nn.Linear(width, vocabulary, bias=False) if is_last else None

    def initialize(self):
        """Take memory and fill it, the same however ranks have stages: until now it was without."""
        torch.manual_seed(self.stage)
        self.to_empty(device=device)
        for name, parameter in self.named_parameters():
            nn.init.ones_(parameter) if "norm" in name else nn.init.normal_(parameter, std=0.02)
        angles = torch.outer(torch.arange(seq_len), 10000.0 ** -(torch.arange(0, head, 2) / head)).to(device)
        self.angles = angles.cos(), angles.sin()

    def forward(self, x):
        """Return logits of tokens (batch, tokens), or what goes from stage to stage."""
        x = self.embedding(x) if self.embedding is not None else x
        for block in self.blocks:
            x = block(x, *self.angles)
        return self.output(self.norm(x)) if self.output is not None else x


def shard(model):
    """Share layers among ranks: experts by EP, all else by tensor parallelism, and parameters by FSDP2."""
    tokens, whole, columns = Shard(1), Replicate(), tp.ColwiseParallel()
    rows, norm = tp.RowwiseParallel(output_layouts=tokens), tp.SequenceParallel(use_local_output=True)
    gathered = tp.PrepareModuleInput(
        input_layouts=(tokens, None, None), desired_input_layouts=(whole, None, None)
    )
    logits = tp.ColwiseParallel(input_layouts=tokens, output_layouts=Shard(-1), use_local_output=False)
    of_tokens = tp.RowwiseParallel(input_layouts=whole, output_layouts=tokens)
    ends = {"embedding": of_tokens, "norm": norm, "output": logits}
    layers = {
        **dict.fromkeys(("norm1", "norm2", "routed.gate"), norm),
        "attention": gathered,
        "attention.w[qkv]": columns,
        "attention.wo": rows,
    }
    if shared:
        one = tp.PrepareModuleInput(input_layouts=tokens, desired_input_layouts=whole)
        layers |= {"routed.shared": one, "routed.shared.w[13]": columns, "routed.shared.w2": rows}
    dtype = torch.bfloat16 if on_gpu else torch.float32
    policy = MixedPrecisionPolicy(dtype, torch.float32, cast_forward_inputs=False)
    options = {"mp_policy": policy, "reshard_after_forward": args.pp == 1}
    if args.tp > 1:
        tp.parallelize_module(model, mesh["tp"], {name: ends[name] for name in ends if getattr(model, name)})
    for block in model.blocks:
        if args.tp > 1:
            tp.parallelize_module(block, mesh["tp"], layers)
        experts = fully_shard(block.routed.experts, mesh=expert_mesh["copies"], **options)
        experts.set_gradient_divide_factor(models)  # they see the tokens of all, not those of one
        experts.set_force_sum_reduction_for_comms(True)  # Gloo cannot divide
        fully_shard(block, mesh=mesh["models"], **options)
    fully_shard(model, mesh=mesh["models"], **options)


def loss_of(logits, targets):
    """Return the mean loss of a batch."""
    loss = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
    return loss.to_local().clone() if args.tp > 1 else loss  # schedules detach it in place


def sequences(step):
    """Return this rank's batch: each sequence counts upwards from a random token."""
    generator = torch.Generator().manual_seed(step * models + rank // args.tp % models)
    first = torch.randint(vocabulary, (batch, 1), generator=generator)
    return ((first + torch.arange(seq_len + 1)) % vocabulary).to(device)


on_gpu = torch.cuda.is_available() and args.backend != "gloo"
dist.init_process_group(args.backend or ("nccl" if on_gpu else "gloo"))
rank, world_size = dist.get_rank(), dist.get_world_size()
device = torch.device("cuda", rank % torch.cuda.device_count()) if on_gpu else torch.device("cpu")
if on_gpu:
    torch.cuda.set_device(device)
if world_size % (args.pp * args.tp) or world_size // args.pp % args.ep or num_experts % args.ep:
    dividing = f"--pp {args.pp} --tp {args.tp} --ep {args.ep}"
    parser.error(f"{dividing}: they do not divide {world_size} ranks and {num_experts} experts")
models = world_size // (args.pp * args.tp)  # each computes sequences of its own
copies = models * args.tp // args.ep  # of each expert
mesh = init_device_mesh(device.type, (args.pp, models, args.tp), mesh_dim_names=("pp", "models", "tp"))
expert_mesh = init_device_mesh(device.type, (args.pp, copies, args.ep), mesh_dim_names=("pp", "copies", "ep"))
expert_group, place = expert_mesh["ep"].get_group(), mesh["pp"].get_local_rank()
stages = [place]
if num_stages > args.pp:
    stages.append(args.pp + place if args.schedule in IN_LOOPS else num_stages - 1 - place)
is_first, is_last = 0 in stages, num_stages - 1 in stages

if on_gpu:
    manual_seed(0, mesh)  # else all ranks exchange the states of their generators
with torch.device("meta"):
    chunks = [Model(stage) for stage in stages]
for chunk in chunks:
    shard(chunk)
    chunk.initialize()
parameters = [parameter for chunk in chunks for parameter in chunk.parameters()]
if not parameters:
    asked = f"--pp {args.pp} --schedule {args.schedule}"
    raise ValueError(f"{asked}: rank {rank} has none of {num_layers} layers")
optimizer = torch.optim.AdamW(parameters, lr=args.lr, weight_decay=0.1, fused=True)
if args.pp > 1:
    group = mesh["pp"].get_group()
    own = [PipelineStage(chunk, chunk.stage, num_stages, device, group=group) for chunk in chunks]
    pipeline = get_schedule_class(args.schedule)(own if len(own) > 1 else own[0], batch, loss_of)

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
    optimizer.step()
    optimizer.zero_grad()

    loss = torch.stack(losses).mean().detach() if losses else torch.zeros((), device=device)
    dist.all_reduce(loss)
    loss = loss.item() / models / args.tp
    speed = batch * seq_len * models / world_size / (time.perf_counter() - begin)
    if rank == 0:
        print(f"step {step}: loss {loss:.6f}, {speed:,.0f} tokens/s/GPU", flush=True)
dist.destroy_process_group()
