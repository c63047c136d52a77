"""Shortest paths on the wiring of any network, for one pair of ranks or for many at once."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from sim.routing.hashing import spread
from sim.routing.protocol import Wiring
from sim.units import Int64Array

UNREACHABLE = np.iinfo(np.int64).max
"""The distance where there is no way."""


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
        """Return the length of the shortest way from *start* to each vertex, or `UNREACHABLE`.

        Each round goes on from the vertices that the one before has brought nearer.
        """
        distance = np.full(self.num_vertices, UNREACHABLE, dtype=np.int64)
        distance[start] = 0
        frontier = np.array([start])
        while len(frontier):
            edges, owner = self._edges_of(frontier)
            head, reached = self.head[edges], distance[frontier[owner]] + self.length[edges]
            nearer = reached < distance[head]
            head = head[nearer]
            np.minimum.at(distance, head, reached[nearer])
            frontier = np.unique(head)
        return distance

    def strangers(self, rank: int, num_ranks: int) -> tuple[Int64Array, Int64Array]:
        """Return the ranks that *rank* cannot reach, and those that cannot reach it."""
        ways = self.distances(rank), self._to(rank)
        unreached, unreaching = (np.flatnonzero(way[:num_ranks] == UNREACHABLE) for way in ways)
        return unreached, unreaching

    def walk(
        self, source: Int64Array, destination: Int64Array, ecmp_seed: int | None = None
    ) -> Iterator[Int64Array]:
        """Yield the k-th link of a shortest path of each of m pairs, -1 for a join or past the end.

        Every destination must be within reach.  Of several edges that lie on a shortest path the
        first is taken, or, with a seed, one by hash of source, destination and vertex.
        """
        ends, row = np.unique(destination, return_inverse=True)
        if not len(ends):
            return
        distance = np.stack([self._to(int(end)) for end in ends])
        at = source.copy()
        while len(going := np.flatnonzero(at != destination)):
            here = at[going]
            edges, owner = self._edges_of(here)
            left = distance[row[going], here][owner]
            rest = distance[row[going][owner], self.head[edges]]
            onward = rest == left - self.length[edges]
            candidates, count = edges[onward], np.bincount(owner[onward], minlength=len(going))
            nth = (
                0 if ecmp_seed is None else spread(ecmp_seed, count, source[going], destination[going], here)
            )
            taken = candidates[np.cumsum(count) - count + nth]
            links = np.full(len(at), -1, dtype=np.int64)
            links[going] = self.link[taken]
            at[going] = self.head[taken]
            yield links

    def _to(self, destination: int) -> Int64Array:
        """Return how far each vertex is from *destination*."""
        if destination not in self._distances:
            self._distances[destination] = self._backwards.distances(destination)
        return self._distances[destination]

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
