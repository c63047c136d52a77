"""Software beside kernels and messages: the host's time, and memory that ranks of a stage hold at most.

``nanotron`` is what nanotron of early 2025 does: bfloat16 with gradients summed in float32, ZeRO 0 or 1,
tensor parallelism with sequence parallelism and gathered inputs, 1F1B.  Its constants were fitted to three
quarters of the steps of 1B and 8B on 8, 32 and 128 GPUs in Hugging Face's Ultra-Scale Playbook
(Apache-2.0); what a layer has for the host to do is counted in ``benchmarks/twins/nanotron_layers.py``.
``ideal`` has a host that is never waited for, and networks of several nodes that lose
nothing beside what their model says.

Memory is that of parameters, gradients and activations.  Of a parameter: 2 bytes of weight, 4 of gradient,
12 of master copy and Adam's moments (divided with ZeRO 1), 2 of DDP's buckets without.  ZeRO 2 divides
gradients, ZeRO 3 weights, too; a layer's gradients, and two layers' weights, are then whole for a while.  Of
a layer and token, what backward passes need: of the gated layer both halves, the activated one and their
product, 8 bytes for each of its width; of the token's width inputs and results of norms, queries, keys and
values, results of attention; of a layer that is computed again its input, and one layer's all.
Micro-batches in flight are as many as stages follow; with zero bubble on each stage as many as on the first.
Of a logit, on the last stage: copies in both types, and gradients.  Where no message between stages holds the
host up, it frees tensors that ranks of tensor parallelism have gathered before their messages are over, and
their memory waits.  What is not counted by its name (`Memory`) was fitted to peaks of steps that calibrate
(``python -m benchmarks.lab.fit ultrascale``); blocks that lie unused are in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sim.hardware import NOTHING, Issued
from testbed.planning.layouts.layout import CHUNKS, ZERO_BUBBLE, Training

_LAYER, _PARALLEL_LAYER = Issued(47, 20), Issued(61, 28, 10)
"""What ``benchmarks/twins/nanotron_layers.py`` issues for a layer, without tensor parallelism and with it."""


@dataclass(frozen=True)
class Host:
    """What Python and slow networks take, in seconds.

    Attributes:
        layer: what a layer issues, both passes, without tensor parallelism.
        parallel_layer: the same with it.
        python: what else the framework's own Python takes of the host for such a layer.
        tensor: of the host for each parameter tensor in a step.
        nodes: by what part collectives of gradients take longer for each node more than one.
        wide: the same of a layer's messages.
        spread: what a layer's messages take besides for each node more than one, both passes.
        crossed: what a layer takes besides where stages are on several nodes, for each rank of tensor
            parallelism, both passes; the cause is not known.
        logits: bytes that the loss moves for each logit, both passes.
        overlap: what is saved where messages and kernels are under way at once, as a part of the shorter; of
            nanotron little, whose streams share one connection to the device.
    """

    layer: Issued = _LAYER
    parallel_layer: Issued = _PARALLEL_LAYER
    python: float = 2.865e-3
    tensor: float = 0.26e-3
    nodes: float = 0.144
    wide: float = 0.545
    spread: float = 4.56e-3
    crossed: float = 2.28e-3
    logits: float = 48.0
    overlap: float = 0.07

    def together(self, message: float, computed: float) -> float:
        """Return how long a message and computation take that are under way at once."""
        return message + computed - self.overlap * min(message, computed)


@dataclass(frozen=True)
class Memory:
    """Bytes that are held beside those by name, and what of a device's memory they may take.

    Attributes:
        hidden: of a layer and token by its width, divided over ranks of tensor parallelism.
        logit: of a logit.
        gathered: of a token by its width, with tensor parallelism, one stage and several micro-batches.
        sharded: of a parameter where ranks divide what is kept of it.
        beside: on every rank.
        usable: the part of a device's memory that this count may reach.
    """

    hidden: float = 30.6
    logit: float = 9.6
    gathered: float = 70.3
    sharded: float = 1.03
    beside: float = 0.385 * 2**30
    usable: float = 69 / 80


@dataclass(frozen=True)
class Framework:
    """Software that trains.

    Attributes:
        name: of it.
        host: what it takes of time.
        memory: what it takes of memory.
    """

    name: str
    host: Host = field(default_factory=Host)
    memory: Memory = field(default_factory=Memory)


FRAMEWORKS: Mapping[str, Framework] = {
    own.name: own
    for own in (
        Framework("nanotron"),
        Framework("ideal", Host(NOTHING, NOTHING, 0, 0, 0, 0, 0, 0, overlap=1)),
    )
}


def peak_bytes(training: Training, memory: Memory, position: int = 0) -> float:
    """Return what the ranks of the stage at *position* hold at most."""
    model, layout = training.model, training.layout
    held = _activations(training, memory, position)
    if position == layout.pp - 1:
        held += training.rows * model.vocabulary / layout.tp * memory.logit
    if layout.tp > layout.pp == 1 < training.micro_batches:
        held += training.rows * model.hidden * memory.gathered
    return _states(training, memory, position) + held


def fullest_bytes(training: Training, memory: Memory) -> float:
    """Return what the ranks of the fullest stage hold at most.

    Of stages with equally many layers the first has most micro-batches in flight.
    """
    stages = training.stages
    first = {layers: position for position, layers in reversed([*enumerate(stages)])}
    positions = {0, *first.values(), len(stages) - 1}
    return max(peak_bytes(training, memory, position) for position in positions)


def _states(training: Training, memory: Memory, position: int) -> float:
    """Return the bytes of parameters, gradients, the optimizer, and what all ranks have besides."""
    layout, model = training.layout, training.model
    states = memory.beside
    for parameters, copies in training.held(position):
        divided = copies if layout.zero else 1
        of_gradients = copies if layout.zero >= 2 else 1
        of_weights = copies if layout.zero >= 3 else 1
        buckets = 2 if copies > 1 and not layout.zero else 0
        sharded = memory.sharded if divided > 1 else 0
        weight = (2 + sharded) / of_weights + 4 / of_gradients
        states += parameters * (weight + 12 / divided + buckets)
    whole = {0: 0, 1: 0, 2: 6, 3: 10}[layout.zero] if layout.shards > 1 else 0
    return states + whole * (model.layer_params + model.expert_params / layout.ep) / layout.tp


def _activations(training: Training, memory: Memory, position: int) -> float:
    """Return the bytes that forward passes leave to backward passes."""
    model, layout, rows = training.model, training.layout, training.rows
    chunks = CHUNKS[layout.schedule]
    behind = layout.pp - (0 if layout.schedule == ZERO_BUBBLE else position)
    in_flight = min(behind + (layout.pp - 1) * (chunks - 1) / chunks, training.micro_batches)
    inner = (8 if model.gated else 6) * model.ffn * max(1, model.experts_per_token) * training.busiest
    of_layer = rows * (memory.hidden * model.hidden + inner) / layout.tp
    layers = training.stages[position]
    if layout.recompute == "full":
        return in_flight * layers * 2 * rows * model.hidden / layout.tp + of_layer
    return in_flight * layers * of_layer
