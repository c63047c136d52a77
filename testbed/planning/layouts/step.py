"""A training step, composed: layers, the pipeline, the host, gradients over data parallelism, the optimizer.

No script is run.  What of a step hides behind what is stated where it is added.  A step is worked out
without one cause after another, so that what is lost to each adds up to the whole (`lost`).

A layer's passes of one micro-batch are its kernels, and the messages that they wait for.  Tensor parallelism
is sequence parallel: inputs of products are gathered under the product of the rank's own part, and once more
in the backward pass; results are reduced and scattered when they are there.  Context parallelism gathers keys
and values before attention and reduces their gradients, each rank with early and late tokens alike.  Experts
get tokens by all-to-all, and give them back, as many as the busiest rank has.

ZeRO 0 reduces gradients in float32 behind the last micro-batch; ZeRO 1 reduces them afterwards and gathers
weights, as nanotron does.  ZeRO 2 reduces and scatters a layer's gradients behind the next, in each micro-
batch, and gathers weights in the end; ZeRO 3 gathers a layer's weights behind the layer before, in both
passes: as FSDP2 does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from sim.units import to_seconds
from testbed.planning.layouts.layout import CHUNKS, EVEN, ZERO_BUBBLE, Training
from testbed.planning.layouts.machine import Machine

TENSOR, CONTEXT, EXPERT = "tensor_parallel", "context_parallel", "expert_parallel"
OF_LAYERS = frozenset({TENSOR, CONTEXT, EXPERT})
"""Causes for which a layer takes longer than its kernels."""


class Passes(NamedTuple):
    """Of a layer or a stage, and one micro-batch, in seconds.

    Attributes:
        forward: its forward pass.
        backward: its backward pass.
        weights: of that, what can wait: products of gradients of layers' weights.
    """

    forward: float
    backward: float
    weights: float


def layer_seconds(training: Training, machine: Machine, without: AbstractSet[str]) -> Passes:
    """Return a layer's passes, if the host is fast enough, *without* some causes."""
    return _layer_seconds(_alike(training), machine, frozenset(without & OF_LAYERS))


def _alike(training: Training) -> Training:
    """Return the training that stands for all whose layers take the same time."""
    layout = replace(training.layout, zero=0, recompute="none", schedule="1f1b")
    return replace(training, layout=layout, sequences=layout.dp * layout.micro_batch)


@lru_cache(maxsize=100_000)
def _layer_seconds(training: Training, machine: Machine, without: frozenset[str]) -> Passes:
    model, layout, kernels = training.model, training.layout, machine.kernels
    rows, hidden, tp = training.rows, model.hidden, layout.tp
    own = rows // tp
    gather, scatter = (
        tensor_message(training, machine, name, without) for name in ("all_gather", "reduce_scatter")
    )
    queries, both = hidden // tp, (hidden + 2 * model.kv_width) // tp
    inner, gates = model.ffn // tp, 2 if model.gated else 1
    product, moved, together = kernels.product, kernels.moved, machine.framework.host.together

    forward = backward = weights = 0.0
    columns_of = (both,) if model.experts else (both, gates * inner)
    for columns in columns_of:  # inputs are gathered under the product of the rank's own part
        forward += together(gather, product(own, columns, hidden)) + (
            product(rows - own, columns, hidden) if tp > 1 else 0.0
        )
        backward += together(gather, product(rows, hidden, columns))
        of_weights = together(scatter, product(columns, hidden, rows))
        backward += of_weights
        weights += of_weights - scatter
    for depth in (queries,) if model.experts else (queries, inner):
        forward += product(rows, hidden, depth) + scatter
        backward += together(gather, product(own, depth, hidden))
        of_weights = product(hidden, depth, rows)
        backward += (product(rows - own, depth, hidden) if tp > 1 else 0.0) + of_weights
        weights += of_weights

    seen, went_back = _attention(training, machine, without)
    norms, sums = 2 * moved(4 * own * hidden), 2 * moved(6 * own * hidden)
    rotary = moved(4 * rows * both) + moved(2 * rows * both)
    activated = moved(4 * rows * inner) + (moved(6 * rows * inner) if model.gated else 0.0)
    if model.experts:
        experts = _experts(training, machine, gather, scatter, without)
        return Passes(
            forward + seen + norms + sums + rotary + experts.forward,
            backward + went_back + 2 * norms + sums + 2 * rotary + experts.backward,
            weights + experts.weights,
        )
    forward += seen + norms + sums + rotary + activated
    backward += went_back + 2 * norms + sums + 2 * rotary + 2.5 * activated
    return Passes(forward, backward, weights)


def tensor_message(training: Training, machine: Machine, collective: str, without: AbstractSet[str]) -> float:
    """Return the time of a layer's message: the activations of all ranks that divide it."""
    if TENSOR in without:
        return 0.0
    beyond = machine.messages.nodes(training.layout.group("tp")) - 1
    slower = 1 + machine.framework.host.wide * beyond
    nbytes = 2 * training.rows * training.model.hidden
    return slower * machine.messages.collective(collective, nbytes, training.layout, "tp")


def host_seconds(training: Training, machine: Machine) -> float:
    """Return what a layer's two passes take at least, by the host and by what it waits for."""
    layout, host, messages = training.layout, machine.framework.host, machine.messages
    device = machine.kernels.device
    if layout.tp == 1:
        return to_seconds(sum(host.layer.taken_ps(device)))
    beyond = messages.nodes(layout.group("tp")) - 1
    crosses = layout.pp > 1 and messages.nodes(layout.group("pp")) > 1
    crossed = host.crossed * layout.tp if crosses else 0.0
    whole = to_seconds(sum(host.parallel_layer.taken_ps(device))) + host.python
    return whole + host.spread * beyond + crossed * (1 + beyond / 8)


def _attention(training: Training, machine: Machine, without: AbstractSet[str]) -> tuple[float, float]:
    """Return attention's passes: of whole sequences, divided, and what gathering keys and values adds."""
    model, layout = training.model, training.layout
    whole = machine.kernels.attention(
        layout.micro_batch, training.seq, model.heads // layout.tp, model.hidden // model.heads
    )
    forward, backward = (own / layout.cp for own in whole)
    if layout.cp > 1 and CONTEXT not in without:
        nbytes = 4 * training.seq * layout.micro_batch * model.kv_width // layout.tp
        gathered, reduced = (
            machine.messages.collective(name, nbytes, layout, "cp")
            for name in ("all_gather", "reduce_scatter")
        )
        forward, backward = forward + gathered, backward + gathered + reduced
    return forward, backward


def _experts(
    training: Training, machine: Machine, gather: float, scatter: float, without: AbstractSet[str]
) -> Passes:
    """Return the passes of routed experts: tokens to them, their products, and results back."""
    model, layout = training.model, training.layout
    routed = round(training.rows * model.experts_per_token * training.busiest)
    each = machine.kernels.experts(
        routed, model.hidden, model.ffn // layout.tp, model.experts // layout.ep, model.gated
    )
    exchanged = 0.0
    if layout.ep > 1 and EXPERT not in without:
        nbytes = 2 * routed // layout.tp * model.hidden
        exchanged = 2 * machine.messages.collective(
            "all_to_all", nbytes, layout, "cp", "dp", within=slice(layout.ep)
        )
    around = model.experts_per_token * (gather + scatter) + exchanged
    return Passes(each + around, 2 * each + around, each)


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
    passes = [own.forward + own.backward for own in stages]
    if pp > 1 and TRANSFERS not in without:
        # a middle stage receives and sends in both passes, and waits for each
        nbytes = 2 * training.rows * training.model.hidden / training.layout.tp
        transfer = machine.messages.transfer(nbytes, training.layout) * CHUNKS[training.layout.schedule]
        passes = [
            own + transfer * (2 if position in (0, pp - 1) else 4) for position, own in enumerate(passes)
        ]
    busiest = sum(passes) / pp if UNEQUAL in without else max(passes)
    filled = 0.0 if BUBBLE in without else (sum(passes) - busiest) / CHUNKS[training.layout.schedule]
    if training.layout.schedule == ZERO_BUBBLE:
        filled = max(0.0, filled - filled_by_weights(passes, stages))
    whole = training.micro_batches * busiest + filled
    if DATA not in without:
        whole += _gradients_seconds(training, machine, stages, without)
    return whole if OPTIMIZER in without else whole + _optimizer_seconds(training, machine, without)


def filled_by_weights(passes: Sequence[float], stages: Sequence[Passes]) -> float:
    """Return how much less is waited for where gradients of weights are computed meanwhile.

    They are left out of the chain of stages through which a pipeline drains, and the busiest stage computes
    its own while it would wait: equal stages wait (p - 1)(F + B - W), by 1F1B (p - 1)(F + B + W).

    Source: Qi et al., "Zero Bubble Pipeline Parallelism", ICLR 2024, schedule ZB-H1.
    """
    busiest = max(range(len(passes)), key=lambda position: passes[position])
    own = stages[busiest].weights
    return sum(stage.weights for stage in stages) - own + (len(stages) - 1) * own


def stage_seconds(training: Training, machine: Machine, position: int, without: AbstractSet[str]) -> Passes:
    """Return the passes of one micro-batch on a stage.

    What of them can wait is taken as the device needs it, where the host does not hold it up, and where
    experts are taken equally often: of a pass that takes longer, no more of it is computed meanwhile.
    """
    layout, kernels, host = training.layout, machine.kernels, machine.framework.host
    layers = training.stages[position]
    forward, backward, _ = (layers * own for own in layer_seconds(training, machine, without))
    even = replace(training, layout=replace(layout, imbalance=EVEN))
    weights = layers * layer_seconds(even, machine, without).weights
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
        return Passes(forward, backward, weights)
    python = layers * host_seconds(training, machine) * (1.5 if again else 1.0)
    part = max(1.0, python / (forward + backward))
    return Passes(forward * part, backward * part, weights)


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
    training: Training, machine: Machine, stages: Sequence[Passes], without: AbstractSet[str]
) -> float:
    """Return what data parallelism adds in the end: DDP hides it behind the last backward pass.

    Of a split one that is the part which computes gradients of weights.

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
    position = max(range(layout.pp), key=lambda own: stages[own].backward)
    both = stages[position], stage_seconds(training, machine, position, {*without, *WAITS})
    is_split = layout.schedule == ZERO_BUBBLE
    backward, alone = (own.weights if is_split else own.backward for own in both)
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
