"""Routes that avoid links, as after a failure."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np

from sim.topology.routing.paths import ShortestPaths
from sim.topology.routing.protocol import Cut, Ranks, Routing, Wiring, one_pair
from sim.units import Int64Array


@dataclass(frozen=True)
class DetourRouting:
    """A route that would cross an avoided link becomes a shortest path, in links, without any of these.

    Other routes stay as they are.  Of several shortest paths one is taken by hash of source,
    destination and each vertex on the way, so that what a link carried is spread; all channels of
    two ranks that must leave their way take the same.  Ranks pass messages on where no other way
    is left.

    Attributes:
        base: the routing of the whole network; links keep its numbers.
        avoided: links, in ascending order.
    """

    base: Routing
    avoided: tuple[int, ...]

    @classmethod
    def around(cls, routing: Routing, avoided: Collection[int]) -> DetourRouting:
        """Return *routing* without the links *avoided*, beside those that it avoids already."""
        if isinstance(routing, DetourRouting):
            return cls(routing.base, tuple(sorted({*avoided, *routing.avoided})))
        return cls(routing, tuple(sorted(avoided)))

    @property
    def by_channel(self) -> bool:
        """Whether connections of two ranks may take different ways."""
        return self.base.by_channel

    def walk(self, source: Ranks, destination: Ranks, channel: Ranks = 0) -> Iterator[Ranks]:
        """Yield the links of the usual route, or else of the detour."""
        if not isinstance(source, np.ndarray):
            usual = [*cast(Iterator[int], self.base.walk(source, destination, channel))]
            passable = set(usual).isdisjoint(self.avoided)
            ends = source, cast(int, destination), cast(int, channel)
            yield from usual if passable else one_pair(self, *ends)
            return

        destination = cast(Int64Array, destination)
        turns = [np.asarray(turn) for turn in self.base.walk(source, destination, channel)]
        barred = np.isin(turns, self.avoided).any(axis=0)
        yield from (np.where(barred, -1, turn) for turn in turns)

        pairs = np.flatnonzero(barred)
        for detour in self.paths.walk(source[pairs], destination[pairs], ecmp_seed=0):
            links = np.full(len(source), -1, dtype=np.int64)
            links[pairs] = detour
            yield links

    @cached_property
    def paths(self) -> ShortestPaths:
        """The paths that are left, by number of links."""
        return ShortestPaths.of(self.wiring(), avoided=self.avoided)

    def cut_off(self, num_ranks: int) -> list[int]:
        """Return the ranks that are not connected both ways with most others, in ascending order."""
        lost = unseen = np.arange(num_ranks)
        for _ in range(len(self.avoided) + 1):  # each link can have cut off the rank that was tried
            strangers = np.union1d(*self.paths.strangers(int(unseen[0]), num_ranks))
            lost = min(lost, strangers, key=len)
            unseen = np.intersect1d(unseen, strangers)
            if 2 * len(lost) <= num_ranks or not len(unseen):
                break
        return [int(rank) for rank in lost]

    def link_name(self, link: int) -> str:
        """Return the name of *link* in the whole network."""
        return self.base.link_name(link)

    def wiring(self) -> Wiring:
        """Return the wiring of the whole network."""
        return self.base.wiring()

    def cuts(self) -> list[Cut]:
        """Return the cuts of the whole network, less the avoided links."""

        def left(links: Int64Array) -> Int64Array:
            return np.where(np.isin(links, self.avoided), -1, links)

        return [
            Cut(cut.name, cut.group_of, left(cut.links_out), left(cut.links_in)) for cut in self.base.cuts()
        ]
