"""Shortest paths on the wiring of any network, for one pair of ranks or for many at once."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from sim.topology.routing.hashing import connection, spread
from sim.topology.routing.protocol import Ranks, Wiring
from sim.units import Int64Array

UNREACHABLE = 2**62
"""The distance where there is no way; longer than any way."""

_AT_ONCE = 2**17  # distances that are sought together, so that they stay in the processor's cache


@dataclass(frozen=True, eq=False)
class ShortestPaths:
    """Directed edges with lengths; joins have length 0.

    Attributes:
        num_vertices: number of vertices.
        tail: the vertex where each edge begins, in ascending order, int64.
        head: the vertex where it ends.
        length: zero or more, int64; no cycle may have length 0, or walks may not end.
        link: its link; -1: a join.
    """

    num_vertices: int
    tail: Int64Array
    head: Int64Array
    length: Int64Array
    link: Int64Array
    _distances: dict[int, Int64Array] = field(default_factory=dict, init=False)

    @classmethod
    def of(cls, wiring: Wiring, length: Int64Array | int = 1, avoided: Collection[int] = ()) -> ShortestPaths:
        """Return the edges of *wiring* but the links *avoided*; *length* is that of each link, or of any."""
        links = np.arange(len(wiring.tail))
        kept = ~np.isin(links, np.fromiter(avoided, dtype=np.int64, count=len(avoided)))
        joins = np.zeros(len(wiring.joins), dtype=np.int64)
        lengths = np.broadcast_to(np.asarray(length, dtype=np.int64), links.shape)
        tail = np.concatenate([wiring.tail[kept], wiring.joins[:, 0]])
        order = np.argsort(tail, kind="stable")
        return cls(
            len(wiring.names),
            tail[order],
            np.concatenate([wiring.head[kept], wiring.joins[:, 1]])[order],
            np.concatenate([lengths[kept], joins])[order],
            np.concatenate([links[kept], joins - 1])[order],
        )

    def reversed(self) -> ShortestPaths:
        """Return the same edges the other way."""
        order = np.argsort(self.head, kind="stable")
        ends = self.head[order], self.tail[order]
        return ShortestPaths(self.num_vertices, *ends, self.length[order], self.link[order])

    def distances(self, start: int) -> Int64Array:
        """Return the length of the shortest way from *start* to each vertex, or `UNREACHABLE`."""
        distance: Int64Array = self._search(np.array([start]))[0]
        return distance

    def _search(self, starts: Int64Array) -> Int64Array:
        """Return the distances from each of u vertices, shape (u, num_vertices).

        Each round goes on from what the one before has brought nearer, for all *starts* together.
        """
        width = self.num_vertices
        distance = np.full(len(starts) * width, UNREACHABLE, dtype=np.int64)
        frontier = np.arange(len(starts)) * width + starts
        distance[frontier] = 0

        while len(frontier):
            vertices = frontier % width
            edges, owner = self._edges_of(vertices)
            head = (frontier - vertices)[owner] + self.head[edges]
            reached = distance[frontier[owner]] + self.length[edges]
            nearer = reached < distance[head]
            head = head[nearer]
            np.minimum.at(distance, head, reached[nearer])
            frontier = np.unique(head)
        return distance.reshape(len(starts), width)

    def strangers(self, rank: int, num_ranks: int) -> tuple[Int64Array, Int64Array]:
        """Return the ranks that *rank* cannot reach, and those that cannot reach it."""
        ways = self.distances(rank), self._backwards.distances(rank)
        unreached, unreaching = (np.flatnonzero(way[:num_ranks] == UNREACHABLE) for way in ways)
        return unreached, unreaching

    def walk(
        self,
        source: Int64Array,
        destination: Int64Array,
        ecmp_seed: int | None = None,
        channel: Ranks = 0,
    ) -> Iterator[Int64Array]:
        """Yield the k-th link of a shortest path of each of m pairs, -1 for a join or past the end.

        Every destination must be within reach.  Of several edges that lie on a shortest path the
        first is taken, or, with a seed, one by hash of source, channel, destination and vertex.
        """
        ends, row = np.unique(destination, return_inverse=True)
        if not len(ends):
            return

        distance = self._to(ends)
        at, sending = source.copy(), np.asarray(connection(source, channel))
        while len(going := np.flatnonzero(at != destination)):
            here = at[going]
            edges, owner = self._edges_of(here)
            left = distance[row[going], here][owner]
            rest = distance[row[going][owner], self.head[edges]]
            onward = rest == left - self.length[edges]
            candidates, count = edges[onward], np.bincount(owner[onward], minlength=len(going))
            nth = (
                0 if ecmp_seed is None else spread(ecmp_seed, count, sending[going], destination[going], here)
            )

            taken = candidates[np.cumsum(count) - count + nth]
            links = np.full(len(at), -1, dtype=np.int64)
            links[going] = self.link[taken]
            at[going] = self.head[taken]
            yield links

    def _to(self, destinations: Int64Array) -> Int64Array:
        """Return how far each vertex is from each of u destinations, shape (u, num_vertices).

        All ways to a vertex with one edge into it pass where that comes from, so that the search,
        which is kept, serves all ranks on one switch.
        """
        back = self._backwards
        first = back._first_edge[destinations]

        only = back._first_edge[destinations + 1] - first == 1
        before, last = destinations.copy(), np.zeros_like(destinations)
        before[only], last[only] = back.head[first[only]], back.length[first[only]]

        wanted = np.array([end for end in np.unique(before).tolist() if end not in self._distances])
        at_once = max(1, _AT_ONCE // self.num_vertices)
        for number in range(0, len(wanted), at_once):
            batch = wanted[number : number + at_once]
            self._distances.update(zip(batch.tolist(), back._search(batch), strict=True))

        distance = np.stack([self._distances[end] for end in before.tolist()]) + last[:, None]
        distance[np.arange(len(destinations)), destinations] = 0
        return distance

    @cached_property
    def _backwards(self) -> ShortestPaths:
        return self.reversed()

    @cached_property
    def _first_edge(self) -> Int64Array:
        return np.searchsorted(self.tail, np.arange(self.num_vertices + 1))

    def _edges_of(self, vertices: Int64Array) -> tuple[Int64Array, Int64Array]:
        """Return all edges that begin at *vertices*, and at the how manyth of these each begins."""
        start = self._first_edge[vertices]
        count = self._first_edge[vertices + 1] - start
        owner = np.repeat(np.arange(len(vertices)), count)
        return np.arange(len(owner)) + (start - np.cumsum(count) + count)[owner], owner
