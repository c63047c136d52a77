"""Layout of a network: its layers, where each vertex stands in a picture, and how lines between them run.

Layers: ranks below, above them the switches that join them, then those that join these.  The level of a
switch is its distance from the nearest rank.  Cut everything above a level away, and the network falls into
parts; each part is what its topmost switches join: nodes, leaves, pods.  So the parts make a tree, whatever
the network; a fat tree has all its cores in one part, then one for each pod.

A picture of a ring is a circle, of a torus a grid or several; a network with switches has layers, any other
is laid out by forces.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from sim.topology import Topology
from sim.topology.kinds.torus import TorusRouting
from sim.topology.routing import Wiring
from sim.units import Int64Array

_NUMBER = re.compile(r"\d+")

Positions = npt.NDArray[np.float64]
PAGE = np.array([10.0, 4.4])
"""Inches that the vertices of a picture in layers span, about."""
ROOM = 0.17
"""Inches that a line keeps from a vertex that it does not join."""
BOWS = (0.0, 0.25, -0.25, 0.5, -0.5, 0.8, -0.8)
"""How far a line bows, in inches, until it is clear."""
BOW_POINTS = 12
"""Pieces of either half of a line that bows."""


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


def places_of(topology: Topology, wiring: Wiring) -> Positions:
    """Return where each vertex of *wiring*, as people see it, stands; shape (vertices, 2)."""
    level = levels(wiring, topology.num_ranks)
    if isinstance(topology.routing, TorusRouting):
        return _torus([size for size in topology.routing.shape if size > 1])
    if not (level > 0).any():
        import networkx

        graph = networkx.Graph()
        graph.add_nodes_from(range(len(wiring.names)))
        graph.add_edges_from(zip(wiring.tail.tolist(), wiring.head.tolist(), strict=True))
        layout = networkx.spring_layout(graph, seed=0, method="force")
        return np.array([layout[vertex] for vertex in range(len(wiring.names))]).reshape(-1, 2)
    places = np.zeros((len(wiring.names), 2))
    places[:, 1] = level
    ends = np.concatenate([np.stack([wiring.tail, wiring.head], axis=1), wiring.joins])
    both = np.concatenate([ends, ends[:, ::-1]])
    ends_here = np.ones(len(wiring.names), dtype=bool)
    ends_here[both[:, 0][level[both[:, 1]] > level[both[:, 0]]]] = False
    left = 0.0
    for part in parts(wiring, topology.num_ranks):
        left = _layers(part, left, places, ends_here) + 1.0
    lost = np.flatnonzero(level < 0)
    places[lost] = np.stack([np.arange(len(lost)), np.full(len(lost), -1)], axis=1)
    return places


def lines_between(topology: Topology, tail: int, head: int, places: Positions) -> list[Positions]:
    """Return a line from *tail* to *head*, or where a torus closes, a stub at either end.

    It is straight, unless it would run through another vertex: then it bows, in an odd number of points.
    """
    start, end = places[tail], places[head]
    shape = topology.routing.shape if isinstance(topology.routing, TorusRouting) else ()
    if sum(size > 1 for size in shape) > 1:
        at = np.stack(np.unravel_index([tail, head], shape))
        if np.ptp(at, axis=1).max() > 1:
            stub = 0.5 * (end - start) / np.ptp(at, axis=1).max()
            return [np.stack([start, start - stub]), np.stack([end, end + stub])]
    if shape or start[1] == end[1]:
        return [np.stack([start, end])]
    low, high = sorted((start[1], end[1]))
    between = places[(places[:, 1] > low) & (places[:, 1] < high)]
    inches = PAGE / np.maximum(np.ptp(places, axis=0), 1e-9)
    if start[1] < end[1]:
        return [_clear_of(between, start, end, inches)]
    return [_clear_of(between, end, start, inches)[::-1]]  # the other way runs on the same line


def first_half(line: Positions) -> Positions:
    """Return the half of *line* at its first end."""
    if len(line) == 2:
        return np.stack([line[0], line.mean(axis=0)])
    return line[: len(line) // 2 + 1]


def _clear_of(between: Positions, start: Positions, end: Positions, inches: Positions) -> Positions:
    """Return a line from *start* to *end* that keeps `ROOM` from those *between*, or nearly."""
    along = np.linspace(0.0, 1.0, 2 * BOW_POINTS + 1)[:, None]
    straight = start + along * (end - start)
    across = ((end - start) * inches)[::-1] * np.array([1.0, -1.0])
    across /= np.hypot(*across)
    reach = np.abs((end - start) * inches) / 2 + max(BOWS) + ROOM
    near = between[(np.abs((between - straight.mean(axis=0)) * inches) <= reach).all(axis=1)]
    best, most = np.stack([start, end]), -1.0
    for bow in BOWS if len(near) else ():
        line = straight + 4 * along * (1 - along) * bow * across / inches
        room = np.hypot(*((line[:, None] - near) * inches).T).min()
        if room > most + 1e-9:
            best, most = (line if bow else np.stack([start, end])), room
        if room >= ROOM:
            break
    return best


def _layers(part: NetworkPart, left: float, places: Positions, ends_here: npt.NDArray[np.bool_]) -> float:
    """Place the vertices of *part* from *left* on; return where it ends.

    Switches that lead no higher (*ends_here*) stand in a row of their own, below those that do.
    """
    if part.level == 0:
        places[part.top[0], 0] = left
        return left + 1.0
    right = left
    for below in part.parts:
        right = _layers(below, right, places, ends_here) + (0.6 if below.level else 0.0)
    top = np.array(part.top)
    for row in (top[ends_here[top]], top[~ends_here[top]]):
        reach = max(right - left - 1.0, 0.0) * (1 - 1 / max(1, len(row)) ** 2)
        places[row, 0] = (left + right - 1.0) / 2 + np.linspace(-0.5, 0.5, len(row)) * reach * (len(row) > 1)
    if ends_here[top].any() and not ends_here[top].all():
        places[top[ends_here[top]], 1] -= 0.4
    return right


def _torus(shape: list[int]) -> Positions:
    """Return a circle, a grid, or grids one behind the other; a fourth dimension puts such side by side."""
    if len(shape) <= 1:
        angles = np.arange(math.prod(shape)) * 2 * np.pi / max(1, math.prod(shape))
        return np.stack([np.sin(angles), np.cos(angles)], axis=1)
    at = np.stack(np.unravel_index(np.arange(math.prod(shape)), shape), axis=1).astype(float)
    places = np.stack([at[:, -1], -at[:, -2]], axis=1)
    depth = shape[-3] if len(shape) > 2 else 1
    if depth > 1:
        places += at[:, -3, None] * np.array([0.38, 0.27])
    beside = shape[-1] + 0.38 * depth + 0.5
    for dimension in range(len(shape) - 4, -1, -1):
        places[:, 0] += at[:, dimension] * beside
        beside *= shape[dimension]
    return places
