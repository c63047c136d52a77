"""A training step, composed: layers, the pipeline, the host, gradients over data parallelism, the optimizer.

No script is run.  What of a step hides behind what is stated where it is added.  A step is worked out
without one cause after another, so that what is lost to each adds up to the whole (`lost`).

ZeRO 0 reduces gradients in float32 behind the last micro-batch; ZeRO 1 reduces them afterwards and gathers
weights, as nanotron does.  ZeRO 2 reduces and scatters a layer's gradients behind the next, in each micro-
batch, and gathers weights in the end; ZeRO 3 gathers a layer's weights behind the layer before, in both
passes: as FSDP2 does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from testbed.planning.layouts.layer import (
    CONTEXT,
    EXPERT,
    TENSOR,
    host_seconds,
    layer_seconds,
    tensor_message,
)
from testbed.planning.layouts.layout import CHUNKS, Training
from testbed.planning.layouts.machine import Machine

BUBBLE, UNEQUAL, HOST, TRANSFERS = "bubble", "unequal_stages", "host", "transfers"
DATA, OPTIMIZER, RECOMPUTE = "data_parallel", "optimizer", "recompute"
COMPUTATION = "computation"
CAUSES = (BUBBLE, UNEQUAL, HOST, TENSOR, CONTEXT, EXPERT, TRANSFERS, DATA, OPTIMIZER, RECOMPUTE)
"""Of losses, in the order in which they are left out; what is left is computation."""
WAITS = frozenset({HOST, TENSOR, CONTEXT, EXPERT})
"""Causes of which the device waits in a pass."""
_BUCKET = 50 * 2**20
"""Bytes of a float32 bucket of DDP."""


def lost(training: Training, machine: Machine) -> Mapping[str, float]:
    """Return the seconds of a step by what they are lost to, computation last; their sum is the step."""
    left, found, without = step_seconds(training, machine), dict[str, float](), set[str]()
    for cause in CAUSES:
        without.add(cause)
        less = min(left, step_seconds(training, machine, without))
        found[cause], left = left - less, less
    return {**found, COMPUTATION: left}


def step_seconds(training: Training, machine: Machine, without: AbstractSet[str] = frozenset()) -> float:
    """Return how long a step takes, *without* some of its `CAUSES`."""
    pp, layers = training.layout.pp, training.stages
    alike = {(layers[own], own == 0, own == pp - 1): own for own in range(pp)}
    of_alike = {key: stage_seconds(training, machine, own, without) for key, own in alike.items()}
    stages = [of_alike[layers[own], own == 0, own == pp - 1] for own in range(pp)]
    passes = [forward + backward for forward, backward in stages]
    if pp > 1 and TRANSFERS not in without:
        # a middle stage receives and sends in both passes, and waits for each
        nbytes = 2 * training.rows * training.model.hidden / training.layout.tp
        transfer = machine.messages.transfer(nbytes, training.layout) * CHUNKS[training.layout.schedule]
        passes = [
            own + transfer * (2 if position in (0, pp - 1) else 4) for position, own in enumerate(passes)
        ]
    busiest = sum(passes) / pp if UNEQUAL in without else max(passes)
    filled = 0.0 if BUBBLE in without else (sum(passes) - busiest) / CHUNKS[training.layout.schedule]
    whole = training.micro_batches * busiest + filled
    if DATA not in without:
        whole += _gradients_seconds(training, machine, stages, without)
    return whole if OPTIMIZER in without else whole + _optimizer_seconds(training, machine, without)


def stage_seconds(
    training: Training, machine: Machine, position: int, without: AbstractSet[str]
) -> tuple[float, float]:
    """Return the forward and the backward pass of one micro-batch on a stage."""
    layout, kernels, host = training.layout, machine.kernels, machine.framework.host
    layers = training.stages[position]
    forward, backward = (layers * own for own in layer_seconds(training, machine, without))
    again = layout.recompute == "full" and RECOMPUTE not in without
    backward += forward if again else 0.0
    backward += kernels.moved(10 * sum(own for own, _ in training.held(position)))
    if position == layout.pp - 1:
        columns = training.model.vocabulary // layout.tp
        one = kernels.product(training.rows, columns, training.model.hidden)
        moved = kernels.moved(training.rows * columns * host.logits) + 3 * one
        gathered = tensor_message(training, machine, "all_gather", without)
        forward, backward = forward + moved / 3 + gathered, backward + moved * 2 / 3 + 2 * gathered
    if layout.zero >= 2 and DATA not in without:
        forward, backward = _with_shards(training, machine, position, forward, backward)
    if HOST in without:
        return forward, backward
    python = layers * host_seconds(training, machine) * (1.5 if again else 1.0)
    part = max(1.0, python / (forward + backward))
    return forward * part, backward * part


# ------------------------------------------------------------------------------ data parallelism


def _with_shards(
    training: Training, machine: Machine, position: int, forward: float, backward: float
) -> tuple[float, float]:
    """Return both passes with what their gradients and weights wait for, a layer behind another."""
    layers = max(1, training.stages[position])
    reduced, gathered = (
        layers * _over_data(training, machine, collective, position, bytes_each / layers)
        for collective, bytes_each in (("reduce_scatter", 4.0), ("all_gather", 2.0))
    )
    together = machine.framework.host.together
    if training.layout.zero < 3:
        return forward, max(backward + reduced / layers, together(reduced, backward))
    both = reduced + gathered
    return (
        max(forward + gathered / layers, together(gathered, forward)),
        max(backward + both / layers, together(both, backward)),
    )


def _over_data(
    training: Training, machine: Machine, collective: str, position: int, bytes_each: float
) -> float:
    """Return the time of a collective of what a stage's ranks hold, so many bytes a parameter."""
    layout, seconds = training.layout, 0.0
    for parameters, copies in training.held(position):
        places = slice(None, None, layout.shards // copies)
        nbytes = bytes_each * parameters
        took = machine.messages.collective(collective, nbytes, layout, "cp", "dp", within=places)
        furthest = layout.group("cp", "dp")[places][-1]
        beyond = max(0, -(-furthest // machine.messages.topology.ranks_per_node) - 1)
        seconds += took * (1 + machine.framework.host.nodes * beyond)
    return seconds


def _gradients_seconds(
    training: Training, machine: Machine, stages: Sequence[tuple[float, float]], without: AbstractSet[str]
) -> float:
    """Return what data parallelism adds in the end: DDP hides it behind the last backward pass.

    It goes on while the device waits for other messages and for the host, and in part beside kernels.
    """
    layout = training.layout
    if layout.shards == 1 or layout.zero == 3:
        return 0.0
    largest = _largest(training)
    if layout.zero == 2:
        return _over_data(training, machine, "all_gather", largest, 2)
    reduced = _over_data(training, machine, "all_reduce", largest, 4)
    if layout.zero == 1:
        return reduced + _over_data(training, machine, "all_gather", largest, 2)
    parameters = sum(own for own, _ in training.held(largest))
    buckets = max(1, round(4 * parameters / _BUCKET))  # several are under way at once: bytes decide
    position = max(range(layout.pp), key=lambda own: stages[own][1])
    backward, alone = stages[position][1], stage_seconds(training, machine, position, {*without, *WAITS})[1]
    behind = (buckets - 1) / buckets
    left = max(0.0, reduced - behind * (backward - alone))
    exposed = machine.framework.host.together(left, behind * alone) - behind * alone
    return max(reduced / buckets, exposed)


def _largest(training: Training) -> int:
    """Return the stage whose ranks hold most parameters."""
    return max(range(training.layout.pp), key=lambda own: sum(held for held, _ in training.held(own)))


def _optimizer_seconds(training: Training, machine: Machine, without: AbstractSet[str]) -> float:
    """Return clipping, the optimizer and what else a step does once: by bytes, or by the host."""
    held = training.held(_largest(training))
    parameters = sum(own for own, _ in held)
    own = sum(part / (copies if training.layout.zero else 1) for part, copies in held)
    kernels = machine.kernels
    device = kernels.moved(34 * own) + kernels.moved(16 * parameters)
    if HOST in without:
        return device
    tensors = 9 * max(training.stages) + 3
    return max(device, tensors * machine.framework.host.tensor)
