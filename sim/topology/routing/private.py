"""Links that one rank has to itself, in front of its first link and behind its last."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np

from sim.topology.routing.protocol import Cut, Ranks, Routing, Wiring
from sim.units import Int64Array


@dataclass(frozen=True)
class PrivateLinksRouting:
    """A message from or to some ranks crosses one more link, which only that rank uses.

    Private link i of *ways* has number ``num_links + i``.  A rank has one for each link at which its routes
    can begin or end, so what it alone gets of a link can be limited, however many share that.

    Attributes:
        base: the routing without them; its links keep their numbers.
        num_links: of *base*.
        ways: for each private link the rank, the link of *base*, and whether messages leave the rank by it.
    """

    base: Routing
    num_links: int
    ways: tuple[tuple[int, int, bool], ...]

    @classmethod
    def around(cls, base: Routing, ranks: Collection[int]) -> PrivateLinksRouting:
        """Return *base* with private links of *ranks*."""
        wiring = base.wiring()
        ways = []
        for rank in sorted(ranks):
            before = [*wiring.joins[wiring.joins[:, 0] == rank, 1].tolist(), rank]
            behind = [*wiring.joins[wiring.joins[:, 1] == rank, 0].tolist(), rank]
            ways += [(rank, link, True) for link in np.flatnonzero(np.isin(wiring.tail, before)).tolist()]
            ways += [(rank, link, False) for link in np.flatnonzero(np.isin(wiring.head, behind)).tolist()]
        return cls(base, len(wiring.tail), tuple(ways))

    @property
    def by_channel(self) -> bool:
        """Whether connections of two ranks may take different ways."""
        return self.base.by_channel

    def walk(self, source: Ranks, destination: Ranks, channel: Ranks = 0) -> Iterator[Ranks]:
        """Yield a private link of *source*, the links of the base, a private link of *destination*."""
        if not isinstance(source, np.ndarray):
            walk = self.base.walk(source, destination, channel)
            usual = [link for link in cast(Iterator[int], walk) if link >= 0]
            if (way := (source, usual[0], True)) in self._number_of:
                yield self._number_of[way]
            yield from usual
            if (way := (cast(int, destination), usual[-1], False)) in self._number_of:
                yield self._number_of[way]
            return

        turns = [cast(Int64Array, turn) for turn in self.base.walk(source, destination, channel)]
        first, last = np.full(len(source), -1), np.full(len(source), -1)
        for turn in turns:
            first = np.where(first < 0, turn, first)
            last = np.where(turn >= 0, turn, last)

        yield self._private(source, first, leaving=True)
        yield from turns
        yield self._private(cast(Int64Array, destination), last, leaving=False)

    @cached_property
    def _number_of(self) -> dict[tuple[int, int, bool], int]:
        return {way: self.num_links + number for number, way in enumerate(self.ways)}

    def _private(self, ranks: Int64Array, links: Int64Array, leaving: bool) -> Int64Array:
        """Return the private link that goes with each rank and link, or -1."""
        private = np.full(len(ranks), -1, dtype=np.int64)
        for rank in {rank for rank, _, _ in self.ways}:
            for pair in np.flatnonzero(ranks == rank).tolist():
                private[pair] = self._number_of[rank, int(links[pair]), leaving]
        return private

    def link_name(self, link: int) -> str:
        """Return for example ``rank 3 slow up``."""
        if link < self.num_links:
            return self.base.link_name(link)
        rank, other, _ = self.ways[link - self.num_links]
        return f"rank {rank} slow {self.base.link_name(other).removeprefix(f'rank {rank} ')}"

    def wiring(self) -> Wiring:
        """Return that of the base, in which each such rank has a port between itself and its links."""
        base = self.base.wiring()
        ranks = sorted({rank for rank, _, _ in self.ways})
        port = np.arange(len(base.names))
        port[ranks] = len(base.names) + np.arange(len(ranks))
        own = np.array([rank for rank, _, _ in self.ways], dtype=np.int64)
        leaving = np.array([leaving for _, _, leaving in self.ways], dtype=bool)
        return Wiring(
            (*base.names, *(f"rank {rank} port" for rank in ranks)),
            np.concatenate([port[base.tail], np.where(leaving, own, port[own])]),
            np.concatenate([port[base.head], np.where(leaving, port[own], own)]),
            port[base.joins],
        )

    def cuts(self) -> list[Cut]:
        """Return those of the base: what crosses them crosses the same links."""
        return self.base.cuts()
