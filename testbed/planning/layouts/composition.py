"""Composition of a script's layouts: steps with all layers, stages and micro-batches, of recordings with few.

[Note: what a composed step assumes] A layer more takes of a step, and holds, what the fourth one of each list
does.  A pipeline's step, and what its ends hold, grow by the same for each micro-batch once there are enough
(`testbed.planning.layouts.script_layout.Schedule.steady`), and by the same for each rank between the ends,
which hold no more: in torch's schedules filling and draining take so much for each rank behind the first,
however many micro-batches there are; of DualPipeV, from the fourth rank on, somewhat more.  So two ranks of a
pipeline are recorded of each layout, as its groups over data parallelism are its own.  What a micro-batch
adds, and what a rank does with one, is recorded of one layout for each tensor and expert parallelism,
schedule and recomputing: groups over data parallelism are taken to meet once in a step.  Messages of stages
left out share no links with others.

All stages are run where one does not fill nodes, as some messages between stages would stay in a node; where
there are fewer micro-batches; and where stages have few layers, or do not follow one another
(`testbed.planning.layouts.script.record`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from sim import load_network
from sim.errors import SimulationError
from testbed.planning.layouts.script import FEW_STAGES, MORE_STAGES, Part, Recorded, Step, in_full, record
from testbed.planning.layouts.script_layout import ScriptLayout

Found: TypeAlias = Recorded | Step | str | None
"""Of a part: recordings; where these say nothing of more stages, a step, or nothing; or why there is none."""


@dataclass(frozen=True)
class Parts:
    """What a layout is composed of.

    Attributes:
        own: of the layout itself, all of it or its least.
        least: what *own* is of the layout, of one that adds the same; None where *own* is all of it.
        wider: of that one, with a micro-batch more than the least.
        deeper: of that one, with a stage and a micro-batch more; None where there is no stage more.
    """

    own: Part
    least: Part | None = None
    wider: Part | None = None
    deeper: Part | None = None

    @property
    def all(self) -> tuple[Part, ...]:
        """Those that there are."""
        return tuple(part for part in (self.own, self.least, self.wider, self.deeper) if part is not None)


def parts_of(
    layouts: Sequence[ScriptLayout], network: str, ranks: int, compute: str
) -> dict[ScriptLayout, Parts]:
    """Return what each of *layouts* is composed of, on so many *ranks* of a *network*, name or file.

    Ranks are compared in the first layout for each number of ranks of tensor parallelism.
    """
    ranks_per_node = load_network(network).topology(ranks).ranks_per_node
    first = {layout.tp: layout for layout in reversed(layouts)}
    shared: dict[tuple[int, int, str, str], ScriptLayout] = {}

    def part(layout: ScriptLayout, stages: int, rounds: int = 0) -> Part:
        batch = layout.steady_batch(stages) + rounds * layout.round_of(stages)
        return Part(layout, stages, batch, network, ranks, compute, layout is first[layout.tp])

    def is_short(layout: ScriptLayout) -> bool:
        return (
            layout.pp >= FEW_STAGES
            and layout.dp * layout.tp % ranks_per_node == 0
            and layout.batch >= layout.steady_batch(layout.pp)
        )

    def adds(layout: ScriptLayout) -> tuple[int, int, str, str]:
        return layout.tp, layout.ep, layout.recompute, layout.schedule

    for layout in sorted(filter(is_short, layouts), key=lambda own: own.pp < MORE_STAGES):
        shared.setdefault(adds(layout), layout)
    found = {}
    for layout in layouts:
        if not is_short(layout):
            found[layout] = Parts(replace(part(layout, layout.pp), batch=layout.batch))
            continue
        near = shared[adds(layout)]
        found[layout] = Parts(
            part(layout, FEW_STAGES),
            part(near, FEW_STAGES),
            part(near, FEW_STAGES, rounds=1),
            part(near, MORE_STAGES) if layout.pp > FEW_STAGES else None,
        )
    return found


def evaluate(part: Part) -> tuple[Part, Found]:
    """Return *part* with what it takes, or with why that is not known.

    Raises:
        UsageError: the script cannot be composed of its layers.
    """
    is_least = (part.stages, part.batch) == (FEW_STAGES, part.layout.steady_batch(FEW_STAGES))
    is_whole = (part.stages, part.batch) == (part.layout.pp, part.layout.batch)
    try:
        found: Found = None if is_whole and not is_least else record(part)
        if found is None and (is_least or is_whole):
            found = _with_all_stages(part)
    except SimulationError as error:
        return part, str(error).partition("\n")[0]
    return part, found


def composed(layout: ScriptLayout, parts: Parts, found: Mapping[Part, Found]) -> Step | str | None:
    """Return the step of *layout*, or why there is none; None: not all that it needs is *found* yet."""
    own = found.get(parts.own)
    if isinstance(own, Step | str):
        return own
    needed = [None if part is None else found.get(part) for part in (parts.least, parts.wider, parts.deeper)]
    for one in needed:
        if isinstance(one, str):
            return one
    least, wider, deeper = (one if isinstance(one, Recorded) else None for one in needed)
    if own is None or least is None or wider is None or (parts.deeper is not None and deeper is None):
        return None

    layers = (
        FEW_STAGES * own.depth if deeper is None else min(FEW_STAGES * own.depth, MORE_STAGES * deeper.depth)
    )
    depth, stages = -(-layers // layout.pp), layout.pp - FEW_STAGES
    few, more = (layout.steady_batch(number) for number in (FEW_STAGES, MORE_STAGES))
    rounds = (layout.batch - few - stages * (more - few)) / layout.round_of(FEW_STAGES)
    step = own.at(depth).plus(rounds, least.at(depth), wider.at(depth))
    return step if deeper is None else step.plus(stages, least.at(depth), deeper.at(depth))


def confirm(part: Part) -> tuple[ScriptLayout, Step | str]:
    """Return the layout of *part*, all of it, with its step when run in full, or with why there is none."""
    try:
        return part.layout, in_full(part)
    except SimulationError as error:
        return part.layout, str(error).partition("\n")[0]


def _with_all_stages(part: Part) -> Step:
    """Return a step of a layout of which all stages are run, with few layers and micro-batches."""
    pp, batch = part.layout.pp, part.layout.batch
    least, rounds = part.layout.steady_batch(pp), part.layout.round_of(pp)
    batches = (least, least + rounds) if pp > 1 and batch > least + rounds else (batch,)
    steps = []
    for number in batches:
        recorded = record(replace(part, stages=pp, batch=number))
        assert recorded is not None
        steps.append(recorded.at(recorded.depth))
    return steps[0].plus((batch - batches[0]) / rounds, steps[0], steps[-1])
