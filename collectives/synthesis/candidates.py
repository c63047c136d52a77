"""Candidates: ways to divide a buffer into chunks and a collective into rounds, by estimate.

Many small chunks fill a pipeline soon and follow the weights of a packing closely; few large ones pay latency
seldom.  Which is best depends on the network, so many are planned, the most promising timed
(`collectives.synthesis.rounds`), and of those some are simulated by who asks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import ceil
from typing import NamedTuple

import numpy as np

from collectives.formats.schedule_file import Message, NetworkOfSchedule, Schedule
from collectives.synthesis.demand import Demand, Kind, Tree
from collectives.synthesis.exchange import exchange_steps
from collectives.synthesis.packing import Packing
from collectives.synthesis.rounding import whole_chunks
from collectives.synthesis.rounds import PICOSECONDS, Lengths, Rounds, Timetable, messages_of
from collectives.synthesis.routes import Routes
from collectives.synthesis.symmetry import no_symmetry, symmetry_of
from sim.topology import Topology

Tell = Callable[[str], None]

_KINDS: Mapping[str, Kind] = {"all_reduce": "reducing", "all_to_all": "exchanging"}
"""Of demands; what others ask for is spreading, or its mirror."""
_PER_MESSAGE = 2e-7
"""What a message counts in the choice, of a candidate's time: small programs are easier to read."""
_CHUNKS = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
_MOST_ROUNDS = 600
_SHALLOW = 3
"""Messages one after another up to which rounds that get shorter are tried."""
_WORTH_TRYING = 0.998
"""Of the best estimate so far, what another may promise at best to be tried."""
_WORTH_KEEPING = 1.02
"""Of the best estimate so far, what another may take to be kept: estimates are not exact."""
_EFFORT = 2_000_000
"""Looks at messages after which no other division is tried."""
_PATIENCE = 400_000
"""Looks after which no other of a kind is tried if none was better."""
_NEAR_ENOUGH = 1.003
"""Of the bound, below which no better one is looked for."""


class Part(NamedTuple):
    """Rounds of one problem, and the tree of each chunk."""

    problem: Problem
    rounds: Rounds
    trees: list[Tree]


class Candidate(NamedTuple):
    """A program before it is one: one part after another."""

    estimate: float
    parts: tuple[Part, ...]
    num_chunks: int
    num_messages: int
    packed_seconds: float

    def worth(self) -> float:
        """Return what candidates are compared by: least is best."""
        return self.estimate * (1 + _PER_MESSAGE * self.num_messages)

    def schedule(self, topology: Topology, collective: str, root: int) -> Schedule:
        """Return it as data."""
        made = [part.problem.steps(part, self.num_chunks) for part in self.parts]
        exchanges = collective == "all_to_all"
        what = "Paths chosen" if exchanges else "Trees packed"
        return Schedule(
            name="exchange" if exchanges else "forest",
            collective=collective,
            ranks=topology.num_ranks,
            chunks=self.num_chunks,
            scratch=max(scratch for _, scratch in made),
            root=root,
            network=NetworkOfSchedule(name=topology.name, digest=topology.digest()),
            made_by=f"{what} so that the fullest link carries as little as can be",
            steps=tuple(step for steps, _ in made for step in steps),
        )


@dataclass(frozen=True, eq=False)
class Problem:
    """A collective as a demand for trees, and how what comes out becomes a program."""

    collective: str
    root: int
    demand: Demand
    backwards: bool

    @classmethod
    def of(cls, topology: Topology, collective: str, root: int) -> Problem:
        """Return what *collective* asks of *topology*; a reduction is a gather with links turned round."""
        backwards = collective in ("reduce", "reduce_scatter")
        routes = Routes.of(topology)
        if backwards:
            routes = routes.reversed()
        if collective in ("broadcast", "reduce"):
            return cls(collective, root, Demand(routes, no_symmetry(routes), [root], 1.0), backwards)
        symmetry = symmetry_of(routes)
        share = 1 / symmetry.order if collective == "all_reduce" else 1 / topology.num_ranks
        kind = _KINDS.get(collective, "spreading")
        return cls(
            collective, root, Demand(routes, symmetry, symmetry.representatives, share, kind), backwards
        )

    @property
    def num_roots(self) -> int:
        """Roots of which something is decided: the first of each orbit."""
        return len(self.demand.roots)

    def num_chunks(self, chunks: int) -> int:
        """Return the chunks of the buffer where each root has *chunks*, or each of its parts."""
        if self.demand.kind == "exchanging":
            return chunks * self.demand.routes.num_ranks
        return chunks * self.num_roots * self.demand.symmetry.order

    def chunk_nbytes(self, nbytes: int, chunks: int) -> float:
        """Return the bytes of a chunk where each root has *chunks*."""
        return nbytes / self.num_chunks(chunks)

    def steps(self, part: Part, num_chunks: int) -> tuple[tuple[tuple[Message, ...], ...], int]:
        """Return the messages of *part*, of *num_chunks* chunks in all, and how much scratch they need."""
        symmetry, roots = self.demand.symmetry, self.demand.roots
        if self.demand.kind == "exchanging":
            return exchange_steps(
                part.rounds, part.trees, symmetry, num_chunks // self.demand.routes.num_ranks
            )
        images = symmetry.ranks
        by_root = self.collective in ("all_gather", "reduce_scatter")
        chunks = num_chunks // (self.num_roots * symmetry.order)
        place: list[tuple[int, int]] = []
        seen = dict.fromkeys(roots, 0)
        for number, tree in enumerate(part.trees):
            place.append((tree.root, seen[tree.root] if by_root else number))
            seen[tree.root] += 1

        def chunk_of(number: int, element: int) -> int:
            own_root, position = place[number]
            if by_root:
                return int(images[element, own_root]) * chunks + position
            return element * len(part.trees) + position

        return messages_of(part.rounds, symmetry, chunk_of, backwards=self.backwards), 0

    def candidate(self, plan: _Plan, rounds: Rounds) -> Candidate:
        """Return the program of *plan*, in *rounds*."""
        pairs = sum(len({(edge.source, edge.destination) for _, edge in moves}) for moves in rounds.moves)
        return Candidate(
            rounds.seconds,
            (Part(self, rounds, plan.trees),),
            self.num_chunks(plan.chunks),
            pairs * self.demand.symmetry.order,
            plan.packed_seconds,
        )


def candidates_of(problem: Problem, packing: Packing, nbytes: int, tell: Tell) -> list[Candidate]:
    """Return ways to divide into chunks and rounds, the most promising, with what they would take."""
    best = float("inf")
    timetable = Timetable(problem.demand)
    candidates: list[Candidate] = []
    plans = sorted(_plans(problem, packing, nbytes), key=lambda plan: plan.guess)
    # Guesses at rounds that get shorter are far off on some networks, so both kinds have their turns.
    waiting = [
        deque(own for own in plans if (own.lengths.shrink < 1) == shorter) for shorter in (False, True)
    ]
    tired = [0, 0]
    while any(waiting) and best > packing.bound * nbytes * _NEAR_ENOUGH and timetable.looks <= _EFFORT:
        kind = min((kind for kind in (0, 1) if waiting[kind]), key=lambda kind: tired[kind])
        if tired[kind] > _PATIENCE:
            break
        plan = waiting[kind].popleft()
        if plan.least > best * _WORTH_TRYING:
            continue
        tell(f"timing {problem.num_chunks(plan.chunks)} chunks")
        before = timetable.looks
        rounds = timetable.rounds(plan.trees, plan.chunk_nbytes, plan.lengths, best * _WORTH_KEEPING)
        tired[kind] += timetable.looks - before
        if rounds is not None:
            candidates.append(problem.candidate(plan, rounds))
            if rounds.seconds < best * _WORTH_TRYING:
                tired[kind] = 0
            best = min(best, rounds.seconds)
    return candidates


class _Plan(NamedTuple):
    """A division into chunks and a length of rounds, before it is tried."""

    guess: float
    least: float
    chunks: int
    chunk_nbytes: float
    lengths: Lengths
    trees: list[Tree]
    packed_seconds: float


def _plans(problem: Problem, packing: Packing, nbytes: int) -> Iterator[_Plan]:
    demand = problem.demand
    num_ranks = demand.routes.num_ranks
    moves_per_chunk = (num_ranks - 1) * (2 if demand.kind == "reducing" else 1)
    most_moves = max(48_000, 6 * num_ranks * num_ranks)
    most_moves *= 2 if demand.symmetry.order > 1 else 1
    seconds, orbit = demand.link_seconds(), demand.symmetry.orbit_of_link[:-1]
    for chunks in _CHUNKS:
        if chunks > 1 and (
            problem.num_chunks(chunks) * moves_per_chunk > most_moves
            or problem.chunk_nbytes(nbytes, chunks) < 1
        ):
            break
        counts = whole_chunks(packing, demand, chunks)
        trees = [tree for tree, count in zip(packing.trees, counts, strict=True) for _ in range(int(count))]
        trees.sort(key=lambda tree: tree.root)
        chunk_nbytes = problem.chunk_nbytes(nbytes, chunks)
        load = counts @ packing.loads
        packed = float(load.max()) * chunk_nbytes
        used = load[orbit] > 0
        unit = float(seconds[orbit == load.argmax()].max()) * chunk_nbytes
        longest = float(seconds[used].max()) * chunk_nbytes
        height = max(tree.height for tree in trees)
        delay = _longest_delay(demand, packing)
        first = max(1, ceil(longest / unit * (1 - 1e-9)))
        each = np.full(len(load), np.inf)
        np.minimum.at(each, orbit, seconds * chunk_nbytes)  # what a chunk takes on a link of an orbit
        multiples = [*range(1, 17), 18, 20, 22, 24, 28, 32]
        if demand.kind == "exchanging":
            multiples += [48, 64, 96, 128, 192, 256, ceil(packed / unit / first)]
        for multiple in multiples:
            round_seconds = unit * first * multiple
            if packed / round_seconds > _MOST_ROUNDS or (multiple > 1 and round_seconds >= 2 * packed):
                continue
            per_round = np.maximum(np.floor(round_seconds / each + 1e-6), 1)
            num_rounds = max(int(np.ceil(load * chunk_nbytes / each / per_round - 1e-6).max()), height)
            least = packed + max(packed / round_seconds, height) * delay / 4
            guess = num_rounds * (min(round_seconds, packed) + delay) + (height - 1) * round_seconds / 3
            guess *= 1 + _PER_MESSAGE * problem.num_chunks(chunks) * moves_per_chunk
            lengths = Lengths(round_seconds, 1.0, round_seconds)
            yield _Plan(guess, least, chunks, chunk_nbytes, lengths, trees, packed)
        for shrink, longer in product((1 / 2, 1 / 4, 1 / 8), (1, 4, 16)) if height <= _SHALLOW else ():
            lengths = Lengths(packed * (1 - shrink), shrink, min(unit * first * longer, packed / 2))
            num_rounds = 1 + max(height, ceil(np.log(packed / lengths.least) / -np.log(shrink)))
            least = packed + num_rounds * delay / 4
            guess = packed + num_rounds * delay + (height - 1) * lengths.least
            guess *= 1 + _PER_MESSAGE * problem.num_chunks(chunks) * moves_per_chunk
            yield _Plan(guess, least, chunks, chunk_nbytes, lengths, trees, packed)


def _longest_delay(demand: Demand, packing: Packing) -> float:
    """Return the longest latency of an edge, in seconds."""
    return max(int(demand.routes.latency[tree.edges()].max()) for tree in packing.trees) / PICOSECONDS
