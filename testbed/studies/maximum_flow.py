"""The largest flow between two vertices of a network, in integers.

Source: Dinic, "Algorithm for solution of a problem of maximum flow in networks with power estimation", Soviet
Mathematics Doklady 11, 1970.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import pairwise

Residual = defaultdict[int, dict[int, int]]
"""From each vertex to each neighbour, what more can flow."""


def maximum_flow(edges: Iterable[tuple[int, int, int]], source: int, sink: int) -> int:
    """Return how much can flow from *source* to *sink* over *edges*: tail, head, capacity; one for each pair.

    Flows along shortest paths are filled up, until there are no more of that length; then along longer ones.
    """
    residual: Residual = defaultdict(dict)
    for tail, head, capacity in edges:
        residual[tail][head] = residual[tail].get(head, 0) + capacity
        residual[head].setdefault(tail, 0)
    total = 0
    while sink in (level := _levels(residual, source, sink)):
        nearer = {
            vertex: [head for head in residual[vertex] if level.get(head) == distance + 1]
            for vertex, distance in level.items()
        }
        path = [source]
        while path:
            vertex = path[-1]
            if vertex == sink:
                more = min(residual[tail][head] for tail, head in pairwise(path))
                for tail, head in pairwise(path):
                    residual[tail][head] -= more
                    residual[head][tail] += more
                total += more
                full = next(
                    place for place, ends in enumerate(pairwise(path)) if not residual[ends[0]][ends[1]]
                )
                del path[full + 1 :]
                continue
            heads = nearer[vertex]
            while heads and not residual[vertex][heads[-1]]:
                heads.pop()
            if heads:
                path.append(heads[-1])
                continue
            path.pop()  # no way on from here
            if path:
                nearer[path[-1]].pop()
    return total


def _levels(residual: Residual, source: int, sink: int) -> dict[int, int]:
    """Return how many edges vertices are from *source*, as far as *sink*."""
    level, last = {source: 0}, [source]
    while last and sink not in level:
        found = []
        for vertex in last:
            for head, more in residual[vertex].items():
                if more and head not in level:
                    level[head] = level[vertex] + 1
                    found.append(head)
        last = found
    return level
