"""One fully sharded step: units gathered before they compute, gradients scattered behind.

    forward, in the order in which parameters are needed    gather up to *prefetch* units ahead, wait, compute
    backward, in the order in which gradients are ready     the same; scatter a unit behind its last gradient
    the end                                                 wait for what is scattered, then the optimizer

All collectives are calls of one communicator, one after another.  The root is gathered first of all, and
not again in the backward pass.

Copies, where they are counted, are those of FSDP2 (``torch/distributed/fsdp/_fully_shard``,
``_fsdp_collectives.py``): a rank's shard into the input of an all-gather and gradients into the input of a
reduce-scatter, on streams of their own, so that only the collective waits for them; and parameters out of an
all-gather's output, for which the computation waits.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from itertools import groupby
from typing import Any

import simpy

from ddp.profiles import Gradient, Profile
from ddp.reduction.strategies.fsdp import ROOT, Fsdp, units_of
from ddp.reduction.strategies.plan import ALL_GATHER, REDUCE_SCATTER
from ddp.step.timeline import Timeline

PADDED_TO = 8
"""Bytes of the elements of which every rank has as many."""


class Sharded:
    """Gathers, computes and scatters units on a timeline; a unit's number is its place in the profile."""

    def __init__(self, timeline: Timeline, profile: Profile, strategy: Fsdp) -> None:
        self.timeline = timeline
        self.profile = profile
        self.strategy = strategy
        names = units_of([gradient.name for gradient in profile.gradients])
        self.units = list(dict.fromkeys(names))
        self._unit_of = [self.units.index(name) for name in names]

    def step(self) -> Generator[simpy.Event, Any, int]:
        """Compute the two passes over the units and wait for all scatters; return the step's length."""
        timeline = self.timeline
        order, works = self.profile.forward_pieces()
        root = self.units.index(ROOT) if ROOT in self.units else self._unit_of[order[0]]
        yield from timeline.compute("forward", works[0])
        yield from self.pass_over("forward", [(root, 0), *self._works(order, works[1:])], gathered=set())

        order, works = self.profile.backward_pieces()
        kept = {root} if self.strategy.reshard else set(range(len(self.units)))
        scattered = yield from self.pass_over("backward", self._works(order, works[:-1]), gathered=kept)
        yield from timeline.compute("backward", works[-1])

        for place in scattered:
            yield from timeline.wait(place)
        yield from timeline.update(self.strategy)
        return timeline.now_ps

    def pass_over(
        self, name: str, works: Sequence[tuple[int, int]], gathered: set[int]
    ) -> Generator[simpy.Event, Any, list[int]]:
        """Compute the work of each unit in turn, gathering all but those *gathered*; return the scatters."""
        timeline = self.timeline
        pieces = [
            (unit, sum(own for _, own in run)) for unit, run in groupby(works, key=lambda work: work[0])
        ]
        units = [unit for unit, _ in pieces]
        last = {unit: position for position, unit in enumerate(units)}
        launched: dict[int, int] = {}
        unused = set(units) - gathered
        scattered = []
        for position, (unit, work_ps) in enumerate(pieces):
            for ahead in [*dict.fromkeys(units[position:])][: 1 + self.strategy.prefetch]:
                if ahead not in gathered and ahead not in launched:
                    nbytes = self.gathered_bytes(ahead)
                    launched[ahead] = self.launch(ahead, ALL_GATHER, nbytes, nbytes // timeline.num_ranks)
            if unit in unused:
                unused.remove(unit)
                yield from timeline.wait(launched[unit])
                yield from timeline.copy(f"copy out:{self.units[unit]}", self.gathered_bytes(unit))
            yield from timeline.compute(f"{name}:{self.units[unit]}", work_ps)
            if name == "backward" and position == last[unit]:
                nbytes = self.scattered_bytes(unit)
                scattered.append(self.launch(unit, REDUCE_SCATTER, nbytes, nbytes))
        return scattered

    def launch(self, unit: int, collective: str, nbytes: int, copied: int) -> int:
        """Launch a collective of a unit that is ready now."""
        return self.timeline.launch(unit, collective, nbytes, self.timeline.now_ps, copied=copied)

    def gathered_bytes(self, unit: int) -> int:
        """Return the bytes of a unit's parameters as they are gathered."""
        elements = sum(gradient.numel for gradient in self._gradients(unit))
        return self.timeline.whole(elements * self.strategy.gathered_bits // 8, PADDED_TO)

    def scattered_bytes(self, unit: int) -> int:
        """Return the bytes of a unit's gradients as they are scattered."""
        return self.timeline.whole(sum(gradient.nbytes for gradient in self._gradients(unit)), PADDED_TO)

    def _gradients(self, unit: int) -> list[Gradient]:
        own = zip(self.profile.gradients, self._unit_of, strict=True)
        return [gradient for gradient, its_unit in own if its_unit == unit]

    def _works(self, order: Sequence[int], works: Sequence[int]) -> list[tuple[int, int]]:
        """Return the unit of each parameter beside its work."""
        return [(self._unit_of[index], work_ps) for index, work_ps in zip(order, works, strict=True)]
