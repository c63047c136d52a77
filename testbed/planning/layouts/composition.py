"""Composition of a script's layouts: steps with all layers, stages and micro-batches, of recordings with few.

[Note: what a composed step assumes] A layer more takes of a step, and holds, what the fourth one of each
list does; of 1F1B, what the second one of a stage does.  Of that, passes are recorded on two ranks, and the
schedule is replayed with them (`testbed.planning.layouts.pipeline`).  Of other schedules, a step and what its
ends hold grow by the same for each micro-batch once there are enough
(`testbed.planning.layouts.schedule.Schedule.steady`), and by the same for each rank between the ends; of
DualPipeV, from the fourth rank on, somewhat more.  Ranks between the ends hold no more than these, and
messages of stages left out share no links with others.

All that is recorded with the least data parallelism, once for each tensor and expert parallelism, schedule
and recomputing.  What more of it changes is added: it goes by one over its ranks, as do the bytes of rings
and what each rank keeps of parameters, between the least and the most, of which a step is recorded by 1F1B.

All stages are run where one does not fill nodes, as some messages between stages would stay in a node; where
there are fewer micro-batches; and where stages have few layers, or do not follow one another
(`testbed.planning.layouts.script.record`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from sim import load_network
from sim.errors import SimulationError
from testbed.planning.layouts.extrapolation import extrapolated
from testbed.planning.layouts.pipeline import Pipeline
from testbed.planning.layouts.script import FEW_STAGES, MORE_STAGES, Part, Recorded, Step, in_full, record
from testbed.planning.layouts.script_layout import ScriptLayout
from testbed.planning.scripts import in_a_line

Found: TypeAlias = Recorded | Step | str | None
"""Of a part: recordings or a step; nothing where it cannot stand for others; or why there is none."""


@dataclass(frozen=True)
class Parts:
    """What a layout is composed of.

    Attributes:
        whole: all of it, where nothing stands for it.
        least: with the least data parallelism, two ranks of its pipeline; None: nothing stands for it.
        wider: of that one, with a micro-batch more; None where the schedule is replayed.
        deeper: of that one, with a rank and its micro-batches more; likewise.
        near: with the least data parallelism, by 1F1B; None where the layout has no more.
        far: with the most; likewise.
    """

    whole: Part
    least: Part | None = None
    wider: Part | None = None
    deeper: Part | None = None
    near: Part | None = None
    far: Part | None = None

    def wanted(self, found: Mapping[Part, Found]) -> tuple[Part, ...]:
        """Return those that are needed, as far as it is *found* what parts come to."""
        short = (self.least, self.wider, self.deeper, self.near, self.far)
        stand = tuple(dict.fromkeys(part for part in short if part is not None))
        stands = bool(stand) and all(found.get(part, "") is not None for part in stand)
        return stand if stands else (self.whole,)


def parts_of(
    layouts: Sequence[ScriptLayout], network: str, ranks: int, compute: str
) -> dict[ScriptLayout, Parts]:
    """Return what each of *layouts* is composed of, on so many *ranks* of a *network*, name or file.

    Ranks are compared in the first layout for each number of ranks of tensor parallelism.
    """
    ranks_per_node = load_network(network).topology(ranks).ranks_per_node
    first = {layout.tp: layout for layout in reversed(layouts)}
    alike: defaultdict[Hashable, list[ScriptLayout]] = defaultdict(list)

    def is_short(layout: ScriptLayout) -> bool:
        order = layout.order
        has_enough = order.is_replayed or layout.batch >= order.steady_batch(layout.pp)
        return layout.pp >= FEW_STAGES and layout.dp * layout.tp % ranks_per_node == 0 and has_enough

    def kind(layout: ScriptLayout) -> Hashable:
        return layout.tp, layout.ep, layout.routing, layout.dp * layout.tp == ranks_per_node

    def part(layout: ScriptLayout, stages: int = FEW_STAGES, rounds: int = 0) -> Part:
        order = layout.order
        batch = stages if order.is_replayed else order.steady_batch(stages) + rounds * order.round_of(stages)
        return Part(replace(layout, pp=stages, batch=batch), network, ranks, compute, stands_in=True)

    for layout in sorted(filter(is_short, layouts), key=lambda own: (not own.order.is_replayed, own.dp)):
        alike[kind(layout)].append(layout)
    found = {}
    for layout in layouts:
        whole = Part(layout, network, ranks, compute, layout is first[layout.tp])
        if not is_short(layout):
            found[layout] = Parts(whole)
            continue
        one, *others = alike[kind(layout)]
        same = [one, *(own for own in others if part(replace(own, dp=one.dp)) == part(one))]
        least, is_extended = replace(layout, dp=one.dp), not layout.order.is_replayed
        near, far = (None, None) if layout.dp == one.dp else (part(same[0]), part(same[-1]))
        found[layout] = Parts(
            whole,
            part(least),
            part(least, rounds=1) if is_extended else None,
            part(least, MORE_STAGES) if is_extended and layout.pp > FEW_STAGES else None,
            near,
            far,
        )
    return found


def wanted(parts: Mapping[ScriptLayout, Parts], found: Mapping[Part, Found]) -> list[Part]:
    """Return the parts that layouts need and of which nothing is *found* yet."""
    needed = dict.fromkeys(part for own in parts.values() for part in own.wanted(found))
    return [part for part in needed if part not in found]


def evaluate(part: Part) -> tuple[Part, Found]:
    """Return *part* with what it takes, or with why that is not known.

    Raises:
        UsageError: the script cannot be composed of its layers.
    """
    try:
        return part, record(part) if part.stands_in else _whole(part)
    except SimulationError as error:
        return part, in_a_line(error)


def composed(layout: ScriptLayout, parts: Parts, found: Mapping[Part, Found]) -> Step | str | None:
    """Return the step of *layout*, or why there is none; None: not all that it needs is *found* yet."""
    known = {part: found.get(part) for part in parts.wanted(found)}
    for took in known.values():
        if isinstance(took, Step | str):
            return took
    recorded = {part: took for part, took in known.items() if isinstance(took, Recorded)}
    if parts.least is None or len(recorded) < len(known):
        return None
    least, wider, deeper, near, far = (
        None if part is None else recorded[part]
        for part in (parts.least, parts.wider, parts.deeper, parts.near, parts.far)
    )
    assert least is not None
    total = min(own.total for own in (least, deeper or least))
    depth = -(-total // (layout.pp * layout.order.stages))
    if wider is None:
        step = Pipeline(parts.least.layout, least).step(layout, depth)
    else:
        step = _extended(
            layout, least.at(depth), wider.at(depth), None if deeper is None else deeper.at(depth)
        )
    if near is None or far is None or parts.near is None or parts.far is None:
        return step
    own, few, most = (1 / one.dp for one in (layout, parts.near.layout, parts.far.layout))
    in_stage = depth * layout.order.stages / parts.near.layout.order.stages
    return extrapolated(step, (own - few) / (most - few), near.at(in_stage), far.at(in_stage))


def _extended(layout: ScriptLayout, least: Step, wider: Step, deeper: Step | None) -> Step:
    """Return a step with the micro-batches and ranks of *layout*, each of which adds what one more does."""
    order, ranks = layout.order, layout.pp - FEW_STAGES
    few, more = (order.steady_batch(number) for number in (FEW_STAGES, MORE_STAGES))
    rounds = (layout.batch - few - ranks * (more - few)) / order.round_of(FEW_STAGES)
    step = extrapolated(least, rounds, least, wider)
    return step if deeper is None else extrapolated(step, ranks, least, deeper)


def confirm(part: Part) -> tuple[ScriptLayout, Step | str]:
    """Return the layout of *part*, all of it, with its step when run in full, or with why there is none."""
    try:
        return part.layout, in_full(part)
    except SimulationError as error:
        return part.layout, in_a_line(error)


def _whole(part: Part) -> Step:
    """Return a step of a layout of which all stages are run, with few layers and micro-batches."""
    layout = part.layout
    order, batch = layout.order, layout.batch
    least, each = order.steady_batch(layout.pp), order.round_of(layout.pp)
    batches = (least, least + each) if layout.pp > 1 and batch > least + each else (batch,)
    steps = []
    for number in batches:
        recorded = record(replace(part, layout=replace(layout, batch=number)))
        assert recorded is not None
        steps.append(recorded.at(-(-recorded.total // (layout.pp * order.stages))))
    return extrapolated(steps[0], (batch - batches[0]) / each, steps[0], steps[-1])
