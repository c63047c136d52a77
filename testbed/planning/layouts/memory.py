"""Memory that a training step holds at most, of the ranks of a stage: parameters, gradients, activations.

Of a parameter: 2 bytes of weight, 4 of gradient, 12 of master copy and Adam's moments (divided with ZeRO
1), 2 of DDP's buckets without, and what lies about of gradients and unused blocks.  ZeRO 2 divides
gradients, ZeRO 3 weights, too; a layer's gradients, and two layers' weights, are then whole for a
while.  Of a layer and token, what backward passes need: inputs and results of norms, queries, keys and
values, results of attention, halves of the gated layer; of a layer that is computed again its input, and
one layer's all.  Micro-batches in flight are as many as stages follow.  Of a logit, on the last stage:
copies in both types, and gradients.

What is not counted by its name (`Memory`) was fitted to peaks of steps that calibrate; the layer's comes out
above what is kept by name, as blocks lie unused.
"""

from __future__ import annotations

from testbed.planning.layouts.framework import Memory
from testbed.planning.layouts.layout import CHUNKS, Training


def peak_bytes(training: Training, memory: Memory, position: int = 0) -> float:
    """Return what the ranks of the stage at *position* hold at most."""
    model, layout = training.model, training.layout
    held = _activations(training, memory, position)
    if position == layout.pp - 1:
        logit = memory.logit + (memory.logit_beside if training.micro_batches > 1 else 0)
        held += training.rows * model.vocabulary / layout.tp * logit
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
    """Return the bytes of parameters, gradients and the optimizer."""
    layout, model = training.layout, training.model
    states = 0.0
    for parameters, copies in training.held(position):
        divided = copies if layout.zero else 1
        of_gradients = copies if layout.zero >= 2 else 1
        of_weights = copies if layout.zero >= 3 else 1
        buckets = 2 if copies > 1 and not layout.zero else 0
        weight = (2 + memory.parameter) / of_weights + 4 / of_gradients
        states += parameters * (weight + 12 / divided + buckets)
    whole = {0: 0, 1: 0, 2: 6, 3: 10}[layout.zero] if layout.shards > 1 else 0
    return states + whole * (model.layer_params + model.expert_params / layout.ep) / layout.tp


def _activations(training: Training, memory: Memory, position: int) -> float:
    """Return the bytes that forward passes leave to backward passes."""
    model, layout, rows = training.model, training.layout, training.rows
    chunks, behind = CHUNKS[layout.schedule], layout.pp - position
    in_flight = min(behind + (layout.pp - 1) * (chunks - 1) / chunks, training.micro_batches)
    inner = memory.inner * (1 if model.gated else 2 / 3) * model.ffn * max(1, model.experts_per_token)
    inner *= training.busiest
    of_layer = rows * (memory.hidden * model.hidden + inner) / layout.tp
    layers = training.stages[position]
    if layout.recompute == "full":
        kept = in_flight * layers * 2 * rows * model.hidden / layout.tp + of_layer
        return kept + in_flight * rows * model.hidden * memory.input
    return in_flight * (layers * of_layer + rows * model.hidden * memory.input)
