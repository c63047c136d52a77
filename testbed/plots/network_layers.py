"""A network as layers: ranks below, above them the switches that join them, then those that join these.

The level of a switch is its distance from the nearest rank.  Cut everything above a level away, and the
network falls into parts; each part is what its topmost switches join: nodes, leaves, pods.  So the
parts make a tree, whatever the network; a fat tree has all its cores in one part, then one for each pod.
A network without switches has no parts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from sim.topology.routing import Wiring
from sim.units import Int64Array

_NUMBER = re.compile(r"\d+")


@dataclass
class NetworkPart:
    """What hangs together up to a level.

    Attributes:
        level: of its topmost vertices; ranks have level 0.
        top: these vertices.
        parts: what remains without them, by smallest rank.
        first_rank: the smallest rank below.
    """

    level: int
    top: list[int]
    parts: list[NetworkPart] = field(default_factory=list)
    first_rank: int = 0

    def ranks(self) -> Iterator[int]:
        """Yield all ranks below."""
        if self.level == 0:
            yield from self.top
        for part in self.parts:
            yield from part.ranks()


def drawn_wiring(wiring: Wiring) -> Wiring:
    """Return *wiring* with vertices ``… in`` and ``… out`` of one thing made one, as people see them."""
    names = [re.sub(r" (in|out)$", "", name) for name in wiring.names]
    number = {name: place for place, name in enumerate(dict.fromkeys(names))}
    of = np.array([number[name] for name in names], dtype=np.int64)
    joins = np.unique(np.sort(of[wiring.joins], axis=1), axis=0)
    return Wiring(tuple(number), of[wiring.tail], of[wiring.head], joins)


def levels(wiring: Wiring, num_ranks: int) -> Int64Array:
    """Return the level of each vertex: 0 for ranks, else the distance from the nearest; -1 unconnected."""
    ends = np.concatenate([np.stack([wiring.tail, wiring.head], axis=1), wiring.joins])
    both = np.concatenate([ends, ends[:, ::-1]])
    level = np.full(len(wiring.names), -1, dtype=np.int64)
    level[:num_ranks] = 0
    reached = 0
    while True:
        near = both[:, 1][(level[both[:, 0]] == reached) & (level[both[:, 1]] < 0)]
        if not len(near):
            return level
        reached += 1
        level[near] = reached


def parts(wiring: Wiring, num_ranks: int) -> list[NetworkPart]:
    """Return the parts of the whole network: one, unless it falls apart; those without ranks are left out."""
    level = levels(wiring, num_ranks)
    ends = np.concatenate([np.stack([wiring.tail, wiring.head], axis=1), wiring.joins])
    upper = level[ends].max(axis=1, initial=1)
    joined = list(range(len(wiring.names)))
    found = [NetworkPart(0, [rank], first_rank=rank) for rank in range(num_ranks)]
    for height in range(1, int(level.max()) + 1):
        for tail, head in ends[upper == height].tolist():
            joined[_root(joined, tail)] = _root(joined, head)
        tops: dict[int, list[int]] = {}
        for vertex in np.flatnonzero(level == height).tolist():
            tops.setdefault(_root(joined, vertex), []).append(vertex)
        below: dict[int, list[NetworkPart]] = {}
        for part in found:
            below.setdefault(_root(joined, part.top[0]), []).append(part)
        found = [
            NetworkPart(height, tops[root], members, members[0].first_rank) if root in tops else members[0]
            for root, members in below.items()
        ]
    return found


def _root(joined: list[int], vertex: int) -> int:
    """Return the vertex that stands for all that *vertex* is joined with; shorten the way to it."""
    while joined[vertex] != vertex:
        joined[vertex] = joined[joined[vertex]]
        vertex = joined[vertex]
    return vertex


def spell_names(names: Sequence[str]) -> str:
    """Return *names* with runs of numbers drawn together: ``rank 0-7, switch``."""
    runs: list[tuple[str, str, int, int]] = []
    for name in names:
        numbers = list(_NUMBER.finditer(name))
        if not numbers:
            runs.append((name, "", -1, -1))
            continue
        last = numbers[-1]
        before, after, number = name[: last.start()], name[last.end() :], int(last[0])
        if runs and runs[-1][0] == before and runs[-1][1] == after and runs[-1][3] == number - 1:
            runs[-1] = (before, after, runs[-1][2], number)
        else:
            runs.append((before, after, number, number))
    return ", ".join(
        before if first < 0 else f"{before}{first if first == last else f'{first}-{last}'}{after}"
        for before, after, first, last in runs
    )
