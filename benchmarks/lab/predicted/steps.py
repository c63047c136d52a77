"""Training steps of Llama-like models on H100s, composed of the models of kernels, collectives and the host.

What the steps did is what nanotron of early 2025 does: bfloat16 with gradients summed in float32, ZeRO 0 or
1, tensor parallelism with sequence parallelism and gathered inputs, 1F1B.  No script is run: `stage_seconds`
adds up a layer's kernels (`Launches`, in training) and messages (`simulate`), so a table of hundreds of rows
takes seconds.  What of it hides behind what is stated where it is added.

The host is the limit where a layer's kernels take less than its Python: `Host` has its constants, and those
of messages between nodes, fitted to three quarters of the steps of 1B and 8B on 8, 32 and 128 GPUs in Hugging
Face's Ultra-Scale Playbook (Apache-2.0).  So was memory (`benchmarks.lab.predicted.memory`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from benchmarks.lab.predicted.devices import device_of, launches_on
from benchmarks.lab.predicted.memory import LIMIT_GIB, peak_gib
from benchmarks.lab.predicted.model import Layout
from benchmarks.lab.predicted.rows import Row
from collectives.timing import default_model, default_transport_model, simulate
from collectives.virtual.computation.cuda.attention import AttentionShape, attention_ps
from sim import load_network
from sim.topology import Topology
from sim.units import SECOND

NEEDED = (
    "layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "tied", "nodes", "gpus", "dp", "tp", "pp",
    "zero", "mbs", "ga", "seq",
)  # fmt: skip
GPU, NETWORK = "h100", "aws-p5"
_aten = torch.ops.aten
_BUCKET = 50 * 2**20
"""Bytes of a float32 bucket of DDP."""


@dataclass(frozen=True)
class Host:
    """What Python and slow networks take, in seconds.

    Attributes:
        layer: of the host for a layer, both passes, without tensor parallelism.
        parallel_layer: the same with it.
        tensor: of the host for each parameter tensor in a step.
        nodes: by what part collectives of gradients take longer for each node more than one.
        wide: the same of a layer's messages.
        spread: what a layer's messages take besides for each node more than one, both passes.
        crossed: what a layer takes besides where stages are on several nodes, for each rank of tensor
            parallelism, both passes; the cause is not known.
        logits: bytes that the loss moves for each logit, both passes.
    """

    layer: float = 1.0e-3
    parallel_layer: float = 4.54e-3
    tensor: float = 0.65e-3
    nodes: float = 0.108
    wide: float = 0.85
    spread: float = 4.3e-3
    crossed: float = 2.24e-3
    logits: float = 52.0


HOST = Host()


def predicted(row: Row) -> Mapping[str, Any]:
    """Return tokens a second and GPU, empty where it does not run, whether it does, and the peak in GiB."""
    layout = Layout.of(row)
    peak = peak_gib(layout)
    fits = peak <= LIMIT_GIB and not layout.leaves_stages_empty
    speed = layout.tokens / step_seconds(layout) / layout.gpus if fits else None
    return {"predicted": speed, "predicted_fits": int(fits), "predicted_peak_gb": peak}


def step_seconds(layout: Layout, host: Host = HOST) -> float:
    """Return how long a step takes."""
    stages = [stage_seconds(layout, layers, position, host) for position, layers in enumerate(layout.stages)]
    transfer = _transfer_seconds(layout)
    passes = [forward + backward for forward, backward in stages]
    if layout.pp > 1:
        # a middle stage receives and sends in both passes, and waits for each
        passes = [
            own + transfer * (2 if position in (0, layout.pp - 1) else 4)
            for position, own in enumerate(passes)
        ]
    whole = sum(passes) + (layout.ga - 1) * max(passes)
    return whole + _gradients_seconds(layout, stages, host) + _optimizer_seconds(layout, host)


def stage_seconds(layout: Layout, layers: int, position: int, host: Host) -> tuple[float, float]:
    """Return the forward and the backward pass of one micro-batch on a stage."""
    forward, backward = (layers * own for own in _layer_seconds(layout, host.wide))
    accumulated = _moved(10 * layout.stage_params(position) / layout.tp)
    backward += accumulated
    if position == layout.pp - 1:
        rows, columns = layout.rows, layout.vocab // layout.tp
        one = _product(rows, columns, layout.hidden)
        moved = _moved(rows * columns * host.logits) + 3 * one
        gathered = _message(layout, "all_gather")
        forward, backward = forward + moved / 3 + gathered, backward + moved * 2 / 3 + 2 * gathered
    python = layers * _host_seconds(layout, host)
    device = forward + backward
    part = max(1.0, python / device)
    return forward * part, backward * part


def _host_seconds(layout: Layout, host: Host) -> float:
    """Return what a layer's two passes take at least, by the host and by what it waits for."""
    if layout.tp == 1:
        return host.layer
    beyond = max(0, layout.tp // 8 - 1)
    crossed = host.crossed * layout.tp if layout.pp > 1 and layout.nodes > 1 else 0.0
    return host.parallel_layer + host.spread * beyond + crossed * (1 + beyond / 8)


@cache
def _layer_seconds(layout: Layout, wide: float) -> tuple[float, float]:
    """Return a layer's forward and backward pass of one micro-batch, if the host is fast enough."""
    rows, hidden, tp = layout.rows, layout.hidden, layout.tp
    own = rows // tp
    slower = 1 + wide * max(0, tp // 8 - 1)
    gather = slower * _message(layout, "all_gather")
    scatter = slower * _message(layout, "reduce_scatter")
    queries, both = hidden // tp, (hidden + 2 * layout.kv_width) // tp
    inner = layout.ffn // tp

    forward = backward = 0.0
    for columns in (both, 2 * inner):  # inputs are gathered under the product of the rank's own part
        forward += max(gather, _product(own, columns, hidden)) + (
            _product(rows - own, columns, hidden) if tp > 1 else 0.0
        )
        backward += max(gather, _product(rows, hidden, columns))
        backward += max(scatter, _product(columns, hidden, rows))
    for depth in (queries, inner):  # results are reduced and scattered when they are there
        forward += _product(rows, hidden, depth) + scatter
        backward += max(gather, _product(own, depth, hidden))
        backward += (_product(rows - own, depth, hidden) if tp > 1 else 0.0) + _product(hidden, depth, rows)

    seen, went_back = _attention(layout)
    norms, sums = 2 * _moved(4 * own * hidden), 2 * _moved(6 * own * hidden)
    rotary = _moved(4 * rows * both) + _moved(2 * rows * both)
    gates = _moved(4 * rows * inner) + _moved(6 * rows * inner)
    forward += seen + norms + sums + rotary + gates
    backward += went_back + 2 * norms + sums + 2 * rotary + 2.5 * gates
    return forward, backward


@cache
def _product(m: int, n: int, k: int) -> float:
    x, weight = torch.empty(m, k, device="meta"), torch.empty(n, k, device="meta")
    operands = x.bfloat16(), weight.bfloat16().t()
    result = torch.empty(m, n, dtype=torch.bfloat16, device="meta")
    launches = launches_on(GPU, "training").of(_aten.mm.default, operands, {}, result)
    return sum(one.duration_ps for one in launches) / SECOND


def _moved(nbytes: float) -> float:
    """Return the time of a kernel that memory bounds."""
    return device_of(GPU).duration_ps(0, int(nbytes), "") / SECOND


def _attention(layout: Layout) -> tuple[float, float]:
    """Return both passes of FlashAttention 2."""
    device, heads = device_of(GPU), layout.heads // layout.tp
    head = layout.hidden // layout.heads
    shape = AttentionShape(layout.mbs * heads, layout.seq, layout.seq, True, layout.seq, head, head)
    each = 2 * layout.rows * heads * head
    rates, peak = device.attention["fa2"], device.peaks["bfloat16"]
    forward, backward = (
        attention_ps(shape, rates, peak, is_back, nbytes, device, launches * device.launch_ps) / SECOND
        for is_back, nbytes, launches in ((False, 4 * each, 1), (True, 14 * each, 3))
    )
    return forward, backward


# ------------------------------------------------------------------------------ messages


@cache
def _topology(nodes: int) -> Topology:
    return load_network(NETWORK).topology(8 * nodes)


@cache
def collective_seconds(collective: str, nbytes: int, nodes: int, places: tuple[int, ...]) -> float:
    """Return how long NCCL takes for a collective among the ranks in *places*."""
    if len(places) == 1 or not nbytes:
        return 0.0
    topology = _topology(nodes)
    run = simulate(
        "nccl",
        nbytes=nbytes,
        topology=topology,
        collective=collective,
        placement=list(places),
        transport_model=default_transport_model(topology),
        model=default_model(topology),
    )
    return run.seconds


def _message(layout: Layout, collective: str) -> float:
    """Return the time of a tensor-parallel message: the layer's activations, of all its ranks."""
    places = tuple(range(layout.tp))
    return collective_seconds(collective, 2 * layout.rows * layout.hidden, layout.nodes, places)


def _transfer_seconds(layout: Layout) -> float:
    """Return the time of a transfer between stages, which are on other nodes where there are any."""
    rate = 45e9 if layout.nodes > 1 else 300e9
    return 2 * layout.rows * layout.hidden / layout.tp / rate


def _data_parallel(layout: Layout, collective: str, nbytes: float, host: Host) -> float:
    """Return the time of a collective of a group of data parallelism; all groups have theirs at once."""
    places = tuple(range(0, layout.dp * layout.tp, layout.tp))
    seconds = collective_seconds(collective, int(nbytes), layout.nodes, places)
    beyond = max(0, -(-places[-1] // 8) - 1) if places[-1] >= 8 else 0
    return seconds * (1 + host.nodes * beyond)


def _gradients_seconds(layout: Layout, stages: Sequence[tuple[float, float]], host: Host) -> float:
    """Return what data parallelism adds: DDP hides it behind the last micro-batch, ZeRO 1 hides nothing."""
    if layout.dp == 1:
        return 0.0
    parameters = max(layout.stage_params(position) for position in range(layout.pp)) / layout.tp
    if layout.zero:
        reduced = _data_parallel(layout, "all_reduce", 4 * parameters, host)
        return reduced + _data_parallel(layout, "all_gather", 2 * parameters, host)
    buckets = max(1, round(4 * parameters / _BUCKET))  # several are under way at once: bytes decide
    reduced = _data_parallel(layout, "all_reduce", 4 * parameters, host)
    hidden = max(backward for _, backward in stages) * (buckets - 1) / buckets
    return max(reduced / buckets, reduced - hidden)


def _optimizer_seconds(layout: Layout, host: Host) -> float:
    """Return clipping, the optimizer and what else a step does once: by bytes, or by the host."""
    parameters = max(layout.stage_params(position) for position in range(layout.pp)) / layout.tp
    own = parameters / (layout.dp if layout.zero else 1)
    device = _moved(34 * own) + _moved(16 * parameters)
    tensors = 9 * max(layout.stages) + 3
    return max(device, tensors * host.tensor)
