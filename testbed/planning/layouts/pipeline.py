"""Pipelines by 1F1B, of any number of ranks: the schedule replayed with passes that were recorded on two."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from testbed.planning.layouts.extrapolation import extrapolated
from testbed.planning.layouts.passes import Passes
from testbed.planning.layouts.schedule import Pass, Replayed, order_of, replay
from testbed.planning.layouts.script import FEW_STAGES, ONE, TWO, Recorded, Step
from testbed.planning.layouts.script_layout import ScriptLayout


class Rest(NamedTuple):
    """What a step takes, and the ranks at both ends of a pipeline hold, besides passes.

    Attributes:
        seconds: of the step.
        compute_seconds: of that, computation of the first rank.
        bubble_seconds: of that, what the first rank waits for messages not sent yet.
        first_bytes: that the first rank holds while it computes, buffers for messages left out.
        last_bytes: the last rank, likewise.
        first_outside: bytes that the first rank holds at most outside of passes.
        last_outside: the last rank, likewise.
    """

    seconds: float
    compute_seconds: float
    bubble_seconds: float
    first_bytes: float
    last_bytes: float
    first_outside: float
    last_outside: float


@dataclass(frozen=True)
class Pipeline:
    """A pipeline of two ranks, run with few layers and with more, which stands for all.

    Attributes:
        layout: that was run.
        recorded: what it took.
    """

    layout: ScriptLayout
    recorded: Recorded

    def step(self, layout: ScriptLayout, depth: int) -> Step:
        """Return a step of *layout*, so many layers in each stage, with the data parallelism of this one."""
        recorded = self.recorded
        few, more = map(self._rest, (recorded.few, recorded.more), recorded.passes)
        rest = extrapolated(few, (depth - ONE) / (TWO - ONE), few, more)
        replayed = self._replayed(layout, depth)
        first, last = (layout.batch * recorded.passes[0].buffer_bytes[stage] for stage in (0, FEW_STAGES - 1))
        return Step(
            replayed.seconds + rest.seconds,
            replayed.compute_seconds + rest.compute_seconds,
            max(0.0, replayed.waited_seconds + rest.bubble_seconds),
            recorded.at(recorded.total / FEW_STAGES).sequence_seconds,
            max(rest.first_outside, rest.first_bytes + first + replayed.most_bytes[0]),
            max(rest.last_outside, rest.last_bytes + last + replayed.most_bytes[-1]),
        )

    def _replayed(self, layout: ScriptLayout, depth: int) -> Replayed:
        """Return what the schedule takes with so many layers in each stage; between the ends, layers alone.

        From twice the micro-batches on that it needs for it, as many as ranks add what the next as many do.
        """
        (few, more), last = (own.takes for own in self.recorded.passes), layout.pp - 1
        takes = dict[tuple[str, int, bool], Pass]()
        for (kind, stage, is_first), own in few.items():
            layers = extrapolated(Pass(), 1 / (TWO - ONE), own, more[kind, stage, is_first])
            takes[kind, last if stage else 0, is_first] = extrapolated(own, depth - ONE, Pass(), layers)
            for between in range(1, last):
                takes[kind, between, is_first] = extrapolated(Pass(), depth, Pass(), layers)
        enough = 2 * layout.order.steady_batch(layout.pp)
        message = self.recorded.passes[0].message_seconds

        def of(micro_batches: int) -> Replayed:
            return replay(order_of(layout.schedule, layout.pp, micro_batches), takes, message)

        rounds = max(0, (layout.batch - enough) // layout.pp)
        found = of(layout.batch - rounds * layout.pp)
        if not rounds:
            return found
        return extrapolated(found, rounds, found, of(layout.batch - (rounds - 1) * layout.pp))

    def _rest(self, step: Step, passes: Passes) -> Rest:
        """Return what a step takes, and ranks hold, besides what the replayed schedule says."""
        layout = self.layout
        order = order_of(layout.schedule, layout.pp, layout.batch)
        replayed = replay(order, passes.takes, passes.message_seconds)
        first, last = (
            passes.most_bytes[end] - replayed.most_bytes[end] - layout.batch * passes.buffer_bytes[stage]
            for end, stage in ((0, 0), (-1, layout.pp - 1))
        )
        return Rest(
            step.seconds - replayed.seconds,
            step.compute_seconds - replayed.compute_seconds,
            step.bubble_seconds - replayed.waited_seconds,
            first,
            last,
            *passes.outside_bytes,
        )
