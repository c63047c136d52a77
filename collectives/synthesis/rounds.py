"""Rounds: which chunk moves on which edge of its tree when, so that full links are full from the start.

In each round a link may carry so many chunks.  What a tree carries is spread over the rounds, and a chunk
that has many messages before it goes before one with few; a rank sends a chunk as soon as it has it and the
links are free.  In an all-reduce it also waits for its turn, so that links that could carry more than their
part are never full: there messages share them unfairly, and the ranks that wait hold up the fullest link.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np

from collectives.formats.schedule_file import Message
from collectives.synthesis.demand import Demand, Tree
from collectives.synthesis.routes import Float64Array
from collectives.synthesis.symmetry import Symmetry
from sim.units import Int64Array

PICOSECONDS = 1e12

Numbering = Callable[[int, int], int]
"""The chunk of the buffer that a chunk of a first root is under a renumbering: of the two numbers."""


@dataclass(frozen=True, slots=True)
class Edge:
    """An edge of a tree, as a message of any chunk on it.

    Attributes:
        source: the rank that sends.
        destination: the rank that receives.
        reduces: into what that holds.
        waits_for: so many other edges bring what is sent.
        followers: the edges that wait for this one, by number.
        after: so many messages follow one after another.
        uses: orbits of links that are crossed, and for how long.
        latency: of the route, in seconds.
    """

    source: int
    destination: int
    reduces: bool
    waits_for: int
    followers: list[int]
    after: int
    uses: list[tuple[int, float]]
    latency: float


@dataclass(frozen=True)
class Rounds:
    """What moves when.

    Attributes:
        moves: of each round: the edge, and the chunk by its number among those of the first roots of orbits.
        seconds: about how long they take, if every round lasts as long as its fullest link and the
            longest latency.
    """

    moves: tuple[tuple[tuple[int, Edge], ...], ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Lengths:
    """How long rounds last, in seconds.

    Attributes:
        first: the first of them.
        shrink: what each is of the one before; where one link is much fuller than others, the last rounds
            may be short, so that little is left to do when it is done.
        least: below which none is.
    """

    first: float
    shrink: float
    least: float

    def of(self, number: int) -> float:
        """Return the length of the round *number*, from 0."""
        return max(self.first * self.shrink**number, self.least)


@dataclass
class Timetable:
    """Divides the messages of a demand into rounds.

    Attributes:
        demand: whose trees they are on.
        looks: how often a message was looked at so far: a measure of work.
    """

    demand: Demand
    looks: int = 0
    _edges: dict[int, list[Edge]] = field(default_factory=dict)

    def rounds(
        self, trees: Sequence[Tree], chunk_nbytes: float, lengths: Lengths, give_up: float
    ) -> Rounds | None:
        """Return rounds of about *lengths* for chunks of *chunk_nbytes* on *trees*, one on each.

        None if they take longer than *give_up*, in seconds.
        """
        edges: list[Edge] = []
        chunk_of: list[int] = []
        starts: list[int] = []
        wanted = self._times(trees, chunk_nbytes, lengths.first)
        keys: list[float] = []
        for chunk, tree in enumerate(trees):
            own = self._edges_of(tree)
            starts.append(len(edges))
            edges += own
            chunk_of += [chunk] * len(own)
            keys += [wanted[chunk] - edge.after for edge in own]
        blocked = [edge.waits_for for edge in edges]
        later = sorted((keys[number], number) for number in range(len(edges)) if not blocked[number])
        waiting: list[tuple[float, int]] = []

        num_orbits = len(self.demand.symmetry.orbit_sizes)
        taken: list[tuple[tuple[int, Edge], ...]] = []
        total = 0.0
        # Where rounds get shorter, most goes in the first of them: no message has a turn to wait for.
        in_turn = self.demand.kind == "reducing" and lengths.shrink == 1
        while waiting or later:
            while later and (not in_turn or later[0][0] <= len(taken) or not waiting):
                waiting.append(heappop(later))
            waiting.sort()
            self.looks += len(waiting)
            limit = lengths.of(len(taken)) / chunk_nbytes * (1 + 1e-6)
            load = [0.0] * num_orbits
            left: list[tuple[float, int]] = []
            done: list[int] = []
            for entry in waiting:
                uses = edges[entry[1]].uses
                for orbit, more in uses:
                    if load[orbit] and load[orbit] + more > limit:
                        left.append(entry)
                        break
                else:
                    for orbit, more in uses:
                        load[orbit] += more
                    done.append(entry[1])
            for number in done:
                start = starts[chunk_of[number]]
                for follower in edges[number].followers:
                    blocked[start + follower] -= 1
                    if not blocked[start + follower]:
                        heappush(later, (keys[start + follower], start + follower))
            waiting = left
            total += max(load) * chunk_nbytes + max(edges[number].latency for number in done)
            if total > give_up:
                return None
            taken.append(tuple((chunk_of[number], edges[number]) for number in done))
        return Rounds(tuple(taken), total)

    def _times(self, trees: Sequence[Tree], chunk_nbytes: float, round_seconds: float) -> list[float]:
        """Return about in which round each chunk should leave its root: those of a tree evenly."""
        count: dict[int, int] = {}
        place = []
        for tree in trees:
            count[id(tree)] = count.get(id(tree), 0) + 1
            place.append(count[id(tree)] - 0.5)
        load = np.zeros(len(self.demand.symmetry.orbit_sizes))
        chosen = {id(tree): tree for tree in trees}
        for number, tree in chosen.items():
            load += self.demand.loads(tree) * count[number]
        rounds = float(load.max()) * chunk_nbytes / round_seconds
        return [rounds * own / count[id(tree)] for own, tree in zip(place, trees, strict=True)]

    def _edges_of(self, tree: Tree) -> list[Edge]:
        if id(tree) not in self._edges:
            self._edges[id(tree)] = edges_of(self.demand, tree)
        return self._edges[id(tree)]


def edges_of(demand: Demand, tree: Tree) -> list[Edge]:
    """Return the edges of *tree*, those on which it collects first."""
    found: list[Edge] = []
    use = demand.link_seconds()
    into_root: list[int] = []
    after = 0 if tree.spreads is None else _height(_children(tree.spreads), tree.root)

    def add(source: int, destination: int, reduces: bool, waits_for: int, messages_after: int) -> int:
        links = demand.routes.links[source, destination]
        links = links[links < len(use)]
        uses = _summed(demand.symmetry.orbit_of_link[links].tolist(), use[links])
        latency = int(demand.routes.latency[source, destination]) / PICOSECONDS
        found.append(Edge(source, destination, reduces, waits_for, [], messages_after, uses, latency))
        return len(found) - 1

    if tree.collects is not None:
        children, number_of = _children(tree.collects), dict[int, int]()
        for depth, rank, parent in _from_root(children, tree.root)[1:]:
            waits_for = len(children.get(rank, ()))
            number = number_of[rank] = add(rank, parent, True, waits_for, depth - 1 + after)
            if parent == tree.root:
                into_root.append(number)
            else:
                found[number].followers.append(number_of[parent])
    if tree.spreads is not None:
        children, number_of = _children(tree.spreads), {}
        for _, rank, parent in _from_root(children, tree.root)[1:]:
            befores = into_root if parent == tree.root else [number_of[parent]]
            number = number_of[rank] = add(parent, rank, False, len(befores), _height(children, rank))
            for before in befores:
                found[before].followers.append(number)
    return found


def _summed(orbits: Sequence[int], seconds: Float64Array) -> list[tuple[int, float]]:
    sums: dict[int, float] = {}
    for orbit, own in zip(orbits, seconds.tolist(), strict=True):
        sums[orbit] = sums.get(orbit, 0.0) + own
    return list(sums.items())


def _children(parents: Int64Array) -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for rank, parent in enumerate(parents.tolist()):
        if parent >= 0:
            children.setdefault(parent, []).append(rank)
    return children


def _from_root(children: dict[int, list[int]], root: int) -> list[tuple[int, int, int]]:
    """Return depth, rank and parent of all ranks, parents first; the root's parent is -1."""
    order = [(0, root, -1)]
    for depth, rank, _ in order:
        order += [(depth + 1, child, rank) for child in children.get(rank, ())]
    return order


def _height(children: dict[int, list[int]], rank: int) -> int:
    return max((_height(children, child) + 1 for child in children.get(rank, ())), default=0)


def messages_of(
    rounds: Rounds, symmetry: Symmetry, chunk_of: Numbering, *, backwards: bool = False
) -> tuple[tuple[Message, ...], ...]:
    """Return the messages of each step; *backwards* makes a gather the reduction that is its mirror."""
    images: Sequence[Sequence[int]] = symmetry.ranks.tolist()
    steps = [_step(moves, images, chunk_of, backwards) for moves in rounds.moves]
    return tuple(reversed(steps)) if backwards else tuple(steps)


def _step(
    moves: Iterable[tuple[int, Edge]], images: Sequence[Sequence[int]], chunk_of: Numbering, backwards: bool
) -> tuple[Message, ...]:
    chunks: defaultdict[tuple[int, int, bool], list[int]] = defaultdict(list)
    for chunk, edge in moves:
        for element, image in enumerate(images):
            source, destination = image[edge.source], image[edge.destination]
            if backwards:
                source, destination = destination, source
            chunks[source, destination, edge.reduces or backwards].append(chunk_of(chunk, element))
    messages: list[Message] = []
    for (source, destination, reduces), moved in chunks.items():
        moved.sort()
        start = moved[0]
        for before, after in zip(moved, [*moved[1:], -1], strict=True):
            if after != before + 1:
                messages.append(Message(source, destination, start, start, before + 1 - start, reduces))
                start = after
    return tuple(messages)
