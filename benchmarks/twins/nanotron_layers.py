"""Training steps as nanotron of early 2025 takes them: layers, tensor parallelism, gradients in float32.

testbed run --ranks 8 --network dgx-h100 --compute h100 --fake benchmarks/twins/nanotron_layers.py --tp 8

Plain torch.  What nanotron has as modules, functions of autograd and collectives is one of these here,
too, so that what they take of the host can be counted; its kernels of Triton are regions of `testbed.fused`.
Left out: pipelines, ZeRO, the embedding, and what its Python does between these.
"""

import argparse

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.autograd import Function

import testbed

parser = argparse.ArgumentParser()
parser.add_argument("--tp", type=int, default=1)
parser.add_argument("--layers", type=int, default=16)
parser.add_argument("--passes", type=int, default=1, help="micro-batches of a step, of one sequence each")
parser.add_argument("--steps", type=int, default=2)
args = parser.parse_args()
SEQ, HIDDEN, HEADS, FFN, VOCAB = 4096, 2048, 32, 8192, 131072

dist.init_process_group("nccl")
rank, tp = dist.get_rank(), args.tp
torch.cuda.set_device(rank % torch.cuda.device_count())
torch.set_default_device("cuda")
groups = [dist.new_group(list(range(first, first + tp))) for first in range(0, dist.get_world_size(), tp)]
group, place = groups[rank // tp], rank % tp


def gathered(own):
    """Return the rows of all ranks that share a layer, and the work that brings them."""
    whole = own.new_empty(tp * own.shape[0], own.shape[1])
    return whole, dist.all_gather_into_tensor(whole, own, group=group, async_op=True)


def scattered(whole):
    """Return the rank's rows of the sum, and the work that brings them."""
    own = whole.new_empty(whole.shape[0] // tp, whole.shape[1])
    return own, dist.reduce_scatter_tensor(own, whole, group=group, async_op=True)


def product_of_gathered(own, weight):
    """Return the product of all ranks' rows, of the rank's own while the others come, and those rows."""
    whole, work = gathered(own)
    out, begin, end = own.new_empty(whole.shape[0], weight.shape[1]), place * len(own), (place + 1) * len(own)
    torch.mm(own, weight, out=out[begin:end])
    work.wait()
    for part in (slice(0, begin), slice(end, len(whole))):
        if part.stop > part.start:
            torch.mm(whole[part], weight, out=out[part])
    return out, whole


class Column(Function):
    """A product whose outputs are divided: its input is gathered, and once more in the backward pass."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return product_of_gathered(x, weight.t())[0]

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        whole, work = gathered(x)
        partial = grad @ weight
        work.wait()
        grad_x, work = scattered(partial)
        grad_weight = grad.t() @ whole
        work.wait()
        return grad_x, grad_weight


class Row(Function):
    """A product whose inputs are divided: its results are summed and scattered."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        out, work = scattered(x @ weight.t())
        work.wait()
        return out

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        grad_x, whole = product_of_gathered(grad, weight)
        return grad_x, whole.t() @ x


class Scaled(Function):
    """What stands for a norm and for rotary angles: a kernel of Triton each way."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        with testbed.fused("scaled"):
            return x * scale

    @staticmethod
    def backward(ctx, grad):
        x, scale = ctx.saved_tensors
        with testbed.fused("scaled_backward"):
            return grad * scale, (grad * x).sum(0) if ctx.needs_input_grad[1] else None


def attention(query, key, value, mask):
    """Return attention of packed sequences, whose lengths are summed anew."""
    for _ in range(2):
        F.pad(mask.sum(-1, dtype=torch.int32).cumsum(0, dtype=torch.int32), (1, 0))
    return F.scaled_dot_product_attention(query, key, value, is_causal=True)


class Part(nn.Module):
    """A module that calls a function or another module, with a weight if it has a *shape*."""

    def __init__(self, function, *shape):
        super().__init__()
        self.function = function
        self.weights = [nn.Parameter(torch.empty(shape, dtype=torch.bfloat16))] if shape else []

    def forward(self, *inputs):
        return self.function(*inputs, *self.weights)


class Layer(nn.Module):
    """A layer of the decoder."""

    def __init__(self):
        super().__init__()
        column, row = (Column.apply, Row.apply) if tp > 1 else (F.linear, F.linear)
        hidden, inner = HIDDEN, FFN // tp
        self.norm, self.norm_2 = Part(Scaled.apply, hidden), Part(Scaled.apply, hidden)
        self.qkv, self.out = Part(column, 3 * hidden // tp, hidden), Part(row, hidden, hidden // tp)
        self.up, self.down = Part(column, 2 * inner, hidden), Part(row, hidden, inner)
        self.rotary, self.core, self.act = Part(Scaled.apply), Part(attention), nn.SiLU()
        self.attention, self.feed_forward, self.gate = map(Part, (self.attend, self.feed, self.gated))

    def attend(self, x, angles, mask):
        qkv = self.qkv(x).view(SEQ, 3, HEADS // tp, -1)
        query, key = self.rotary(qkv[:, :2], angles).unbind(1)
        read = self.core(*(own.transpose(0, 1)[None] for own in (query, key, qkv[:, 2])), mask)
        return self.out(read[0].transpose(0, 1).reshape(SEQ, -1))

    def feed(self, x):
        return self.down(self.gate(self.up(x)))

    def gated(self, x):
        gate, up = x.chunk(2, dim=-1)
        return self.act(gate) * up

    def forward(self, x, angles, mask):
        x = x + self.attention(self.norm(x), angles, mask)
        return x + self.feed_forward(self.norm_2(x))


layers = [Part(Layer()) for _ in range(args.layers)]  # a stage of a pipeline wraps each
head = Part(Column.apply if tp > 1 else F.linear, VOCAB // tp, HIDDEN)
modules = [own for layer in (*layers, head) for own in layer.modules()]
weights = [weight for own in modules for weight in getattr(own, "weights", ())]
sums = [nn.Parameter(torch.zeros_like(own, dtype=torch.float32)) for own in weights]
angles = torch.ones(SEQ, 1, 1, HIDDEN // HEADS, dtype=torch.bfloat16)
mask = torch.ones(1, SEQ, dtype=torch.bool)
optimizer = torch.optim.AdamW(sums, fused=True)
for own in sums:
    own.grad = torch.zeros_like(own)
for _ in range(args.steps):
    for _ in range(args.passes):
        x = torch.zeros(SEQ // tp, HIDDEN, dtype=torch.bfloat16, requires_grad=True)
        for layer in layers:
            x = layer(x, angles, mask)
        logits = head(x).float()
        (logits.logsumexp(-1) - logits[:, 0]).mean().backward()
        for own, total in zip(weights, sums, strict=True):
            total.grad.add_(own.grad)
            own.grad = None
    optimizer.step()
    torch._foreach_zero_([own.grad for own in sums])
