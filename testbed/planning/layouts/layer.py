"""A layer's two passes of one micro-batch: its kernels, and the messages that they wait for.

Tensor parallelism is sequence parallel: inputs of products are gathered under the product of the rank's
own part, and once more in the backward pass; results are reduced and scattered when they are
there.  Context parallelism gathers keys and values before attention and reduces their gradients, each rank
with early and late tokens alike. Experts get tokens by all-to-all, and give them back, as many
as the busiest rank has (`testbed.planning.layouts.layout`).
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import lru_cache

from sim.units import to_seconds
from testbed.planning.layouts.layout import Training
from testbed.planning.layouts.machine import Machine

TENSOR, CONTEXT, EXPERT = "tensor_parallel", "context_parallel", "expert_parallel"
OF_LAYERS = frozenset({TENSOR, CONTEXT, EXPERT})
"""Causes for which a layer takes longer than its kernels."""


def layer_seconds(training: Training, machine: Machine, without: AbstractSet[str]) -> tuple[float, float]:
    """Return a layer's forward and backward pass, if the host is fast enough, *without* some causes."""
    return _layer_seconds(_alike(training), machine, frozenset(without & OF_LAYERS))


def _alike(training: Training) -> Training:
    """Return the training that stands for all whose layers take the same time."""
    layout = replace(training.layout, zero=0, recompute="none", schedule="1f1b")
    return replace(training, layout=layout, sequences=layout.dp * layout.micro_batch)


@lru_cache(maxsize=100_000)
def _layer_seconds(training: Training, machine: Machine, without: frozenset[str]) -> tuple[float, float]:
    model, layout, kernels = training.model, training.layout, machine.kernels
    rows, hidden, tp = training.rows, model.hidden, layout.tp
    own = rows // tp
    gather, scatter = (
        tensor_message(training, machine, name, without) for name in ("all_gather", "reduce_scatter")
    )
    queries, both = hidden // tp, (hidden + 2 * model.kv_width) // tp
    inner, gates = model.ffn // tp, 2 if model.gated else 1
    product, moved, together = kernels.product, kernels.moved, machine.framework.host.together

    forward = backward = 0.0
    columns_of = (both,) if model.experts else (both, gates * inner)
    for columns in columns_of:  # inputs are gathered under the product of the rank's own part
        forward += together(gather, product(own, columns, hidden)) + (
            product(rows - own, columns, hidden) if tp > 1 else 0.0
        )
        backward += together(gather, product(rows, hidden, columns))
        backward += together(scatter, product(columns, hidden, rows))
    for depth in (queries,) if model.experts else (queries, inner):
        forward += product(rows, hidden, depth) + scatter
        backward += together(gather, product(own, depth, hidden))
        backward += (product(rows - own, depth, hidden) if tp > 1 else 0.0) + product(hidden, depth, rows)

    seen, went_back = _attention(training, machine, without)
    norms, sums = 2 * moved(4 * own * hidden), 2 * moved(6 * own * hidden)
    rotary = moved(4 * rows * both) + moved(2 * rows * both)
    activated = moved(4 * rows * inner) + (moved(6 * rows * inner) if model.gated else 0.0)
    if model.experts:
        forward_experts, backward_experts = _experts(training, machine, gather, scatter, without)
        return (
            forward + seen + norms + sums + rotary + forward_experts,
            backward + went_back + 2 * norms + sums + 2 * rotary + backward_experts,
        )
    forward += seen + norms + sums + rotary + activated
    backward += went_back + 2 * norms + sums + 2 * rotary + 2.5 * activated
    return forward, backward


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
) -> tuple[float, float]:
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
    return each + around, 2 * each + around
