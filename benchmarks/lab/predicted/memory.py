"""Memory that a training step holds at most, of the first stage's ranks: parameters, gradients, activations.

Of a parameter: 2 bytes of weight, 4 of gradient, 12 of master copy and Adam's moments (by ranks of data
parallelism with ZeRO 1), 2 of DDP's buckets without, and what lies about of gradients and unused blocks.  Of
a layer and token, what backward passes need: inputs and results of norms, queries, keys and values, results
of attention, halves of the gated layer; micro-batches in flight are as many as stages follow.  Of a logit, on
the last stage: copies in both types, and gradients.

What is not counted by its name (bytes of a layer's token, of a logit, of a parameter besides) was fitted to
peaks of steps that calibrate; the layer's comes out above what is kept by name, as blocks lie unused.
"""

from __future__ import annotations

from benchmarks.lab.predicted.model import Layout

LIMIT_GIB = 65.0
"""What a step of an H100 of 80 GB may hold, by this count: fitted to which calibrating rows ran."""
HIDDEN, INNER = 16.0, 11.0
"""Bytes of a layer and token by their widths, divided over ranks of tensor parallelism."""
INPUT = 17.4
"""Bytes of a token in flight on the first stage, by its width, on each rank."""
LOGIT, LOGIT_BESIDE = 9.2, 3.9
"""Bytes of a logit, and those more where gradients are there already."""
PARAMETER = 1.7
"""Bytes of a parameter besides those by name."""


def peak_gib(layout: Layout) -> float:
    """Return what the ranks of the first stage hold at most, in GiB."""
    parameters = layout.stage_params(0) / layout.tp
    divided = layout.dp if layout.zero else 1
    static = parameters * (6 + PARAMETER + 12 / divided + (2 if layout.dp > 1 and not layout.zero else 0))
    in_flight = min(layout.pp, layout.ga)
    of_layer = layout.rows * (HIDDEN * layout.hidden + INNER * layout.ffn) / layout.tp
    held = in_flight * (layout.stages[0] * of_layer + layout.rows * layout.hidden * INPUT)
    if layout.pp == 1:
        logit = LOGIT + (LOGIT_BESIDE if layout.ga > 1 else 0)
        held += layout.rows * layout.vocab / layout.tp * logit
    return (static + held) / 2**30
