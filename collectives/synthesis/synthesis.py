"""Synthesis of a program for a network: trees, chunks and rounds by plan, the best of them by simulation.

A packing of trees (`collectives.synthesis.packing`) says how fast the fullest link allows; how many chunks go
on the trees and how long a round lasts decides what latency and the ends of a pipeline add.  A few
combinations are estimated, the best simulated, and the winner is held against the programs that ship,
channels included.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import NamedTuple

import numpy as np

from collectives.catalogue.admission import admitted
from collectives.errors import CollectiveError, NotSupportedError
from collectives.formats.schedule_file import Message, NetworkOfSchedule, Schedule
from collectives.models.cost import Cheapest
from collectives.models.floor import floor_ps
from collectives.program import Algorithm
from collectives.simulation import simulate
from collectives.synthesis.cut import Bound, narrowest_cut
from collectives.synthesis.messages import messages_of
from collectives.synthesis.packing import Demand, Packing, Tree, pack
from collectives.synthesis.rounding import whole_chunks
from collectives.synthesis.rounds import PICOSECONDS, Rounds, Timetable
from collectives.synthesis.routes import Routes
from collectives.synthesis.symmetry import no_symmetry, symmetry_of
from sim.topology import Topology

COLLECTIVES = ("all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce")
"""What programs are made for."""

MAX_RANKS = 512
SIMULATED = 3
"""Programs that ship that are simulated: those of the least estimated cost."""

_MOST_MESSAGES = 12_000
"""Messages of candidates that are simulated, up to 16 ranks; four times as many above, the best always."""
_PER_MESSAGE = 2e-7
"""What a message counts in the choice of candidates, of their time: small programs are easier to read."""

_CHUNKS = (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
_MOST_ROUNDS = 300
_WORTH_TRYING = 0.998
"""Of the best estimate so far, what another may promise at best to be tried."""
_WORTH_KEEPING = 1.02
"""Of the best estimate so far, what another may take to be kept: estimates are not exact."""
_EFFORT = 400_000
"""Looks at messages after which no other division is tried, up to 16 ranks; 16 times as many above."""

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Synthesis:
    """What was made, beside what there was.

    Attributes:
        collective: that it carries out.
        nbytes: of the buffer, as nccl-tests counts it.
        schedule: the program as data.
        algorithm: the program.
        seconds: that it takes, simulated.
        optimum_seconds: that no program can go below.
        by: ``cut``; ``routes``, no messages on the network's routes are faster; ``trees``, no reduction on
            trees that then go out on trees is; or ``floor`` (see `collectives.models.floor`).
        cut: the cut that needs longest.
        tree_seconds: that no program of trees on the network's routes can go below.
        packed_seconds: that the fullest link needs for the trees as they were divided.
        shipped: the best program that ships; None where none runs here.
        shipped_seconds: that it takes, simulated.
        num_trees: different trees of each root, on average.
        num_chunks: of the buffer.
        num_steps: rounds.
        height: messages one after another on the longest tree.
        order: of the symmetry that was found.
        search_seconds: that the search took.
    """

    collective: str
    nbytes: int
    schedule: Schedule
    algorithm: Algorithm
    seconds: float
    optimum_seconds: float
    by: str
    cut: Bound
    tree_seconds: float
    packed_seconds: float
    shipped: Algorithm | None
    shipped_seconds: float | None
    num_trees: float
    num_chunks: int
    num_steps: int
    height: int
    order: int
    search_seconds: float

    @property
    def fraction_of_optimum(self) -> float:
        """The optimum over the time of the better of the two."""
        return self.optimum_seconds / self.best_seconds

    @property
    def shipped_is_faster(self) -> bool:
        """Whether nothing was gained."""
        return self.shipped_seconds is not None and self.shipped_seconds <= self.seconds

    @property
    def best(self) -> Algorithm:
        """The faster of what was made and what ships."""
        return self.shipped if self.shipped is not None and self.shipped_is_faster else self.algorithm

    @property
    def best_seconds(self) -> float:
        """The time of that."""
        return self.seconds if self.shipped_seconds is None else min(self.seconds, self.shipped_seconds)


class _Candidate(NamedTuple):
    estimate: float
    rounds: Rounds
    trees: list[Tree]
    num_chunks: int
    num_messages: int
    packed_seconds: float

    def worth(self) -> float:
        """Return what candidates are compared by: least is best."""
        return self.estimate * (1 + _PER_MESSAGE * self.num_messages)


def synthesize(
    topology: Topology,
    collective: str = "all_gather",
    nbytes: int = 1 << 30,
    *,
    root: int = 0,
    tell: Tell = lambda what: None,
) -> Synthesis:
    """Make a program for *collective* on *nbytes* bytes on *topology*.

    Args:
        topology: the network, of at most `MAX_RANKS` ranks.
        collective: one of `COLLECTIVES`.
        nbytes: of the buffer, as nccl-tests counts it.
        root: of a rooted collective.
        tell: is told what is being done.

    Raises:
        NotSupportedError: another collective, too many ranks, or one rank alone.
        ValueError: *root* is no rank.
    """
    began = time.monotonic()
    _check(topology, collective, nbytes, root)
    problem = _Problem.of(topology, collective, root)
    tell("looking for the cut that bounds")
    cut = _cut(topology, collective, root)
    enough = float(cut.seconds_per_byte) if collective != "all_reduce" else 0.0
    tell("packing trees")
    packing = pack(problem.demand, enough=enough)
    candidates = sorted(_candidates(problem, packing, nbytes, tell), key=_Candidate.worth)

    best: tuple[float, Schedule, Algorithm, _Candidate] | None = None
    messages = 0
    for candidate in candidates[:3]:
        messages += candidate.num_messages
        if best is not None and messages > _MOST_MESSAGES * (1 if topology.num_ranks <= 16 else 4):
            continue
        tell(f"simulating a candidate of {candidate.num_chunks} chunks")
        schedule = problem.schedule(topology, candidate)
        algorithm = schedule.algorithm()
        seconds = simulate(algorithm, nbytes=nbytes, topology=topology).seconds
        if best is None or seconds < best[0]:
            best = seconds, schedule, algorithm, candidate
    assert best is not None
    seconds, schedule, algorithm, candidate = best

    tell("simulating the programs that ship")
    shipped, shipped_seconds = best_shipped(topology, collective, nbytes, root)
    cut_seconds = float(cut.seconds_per_byte * nbytes)
    tree_seconds = packing.bound * nbytes
    floor = floor_ps(collective, nbytes, topology, root) / PICOSECONDS
    bounds = {
        "cut": cut_seconds * (1 + 1e-9),  # the simplest of equal reasons
        "trees" if collective == "all_reduce" else "routes": tree_seconds,
        "floor": floor,
    }
    by = max(bounds, key=lambda name: bounds[name])
    different = len({id(tree) for tree in candidate.trees})
    return Synthesis(
        collective=collective,
        nbytes=nbytes,
        schedule=schedule,
        algorithm=algorithm,
        seconds=seconds,
        optimum_seconds=cut_seconds if by == "cut" else bounds[by],
        by=by,
        cut=cut,
        tree_seconds=tree_seconds,
        packed_seconds=candidate.packed_seconds,
        shipped=shipped,
        shipped_seconds=shipped_seconds,
        num_trees=different / len(problem.demand.roots),
        num_chunks=candidate.num_chunks,
        num_steps=len(candidate.rounds.moves),
        height=max(tree.height for tree in candidate.trees),
        order=problem.demand.symmetry.order,
        search_seconds=time.monotonic() - began,
    )


def best_shipped(
    topology: Topology, collective: str, nbytes: int, root: int = 0
) -> tuple[Algorithm | None, float | None]:
    """Return the fastest of the programs that ship, channels included, and its time, simulated.

    Those are simulated whose estimated cost is least.
    """
    ranked = sorted(Cheapest(topology).costs(collective), key=lambda own: own[0].seconds(nbytes))
    best: tuple[Algorithm | None, float | None] = None, None
    for _, algorithm in ranked[:SIMULATED]:
        if "root" in algorithm.parameter_names():
            algorithm = algorithm.with_parameters(root=root)
        try:
            seconds = simulate(
                admitted(algorithm, topology.num_ranks), nbytes=nbytes, topology=topology
            ).seconds
        except CollectiveError:
            continue
        if best[1] is None or seconds < best[1]:
            best = algorithm, seconds
    return best


def _check(topology: Topology, collective: str, nbytes: int, root: int) -> None:
    if collective not in COLLECTIVES:
        known = ", ".join(COLLECTIVES)
        raise NotSupportedError(f"no program can be made for {collective}; expected one of {known}")
    if not 2 <= topology.num_ranks <= MAX_RANKS:
        raise NotSupportedError(
            f"programs are made for 2 to {MAX_RANKS} ranks, and {topology.name} has {topology.num_ranks}"
        )
    if not 0 <= root < topology.num_ranks:
        raise ValueError(f"root must be a rank from 0 to {topology.num_ranks - 1}, got {root}")
    if nbytes < 1:
        raise ValueError(f"nbytes must be at least 1, got {nbytes}")


def _cut(topology: Topology, collective: str, root: int) -> Bound:
    num_ranks = topology.num_ranks
    if collective in ("broadcast", "reduce"):
        shares = [Fraction(int(rank == root)) for rank in range(num_ranks)]
    else:
        shares = [Fraction(1, num_ranks)] * num_ranks
    outward = collective not in ("reduce", "reduce_scatter")
    return narrowest_cut(topology, shares, outward=outward)


@dataclass(frozen=True, eq=False)
class _Problem:
    """A collective as a demand for trees, and how what comes out becomes a program."""

    collective: str
    root: int
    demand: Demand
    backwards: bool

    @classmethod
    def of(cls, topology: Topology, collective: str, root: int) -> _Problem:
        backwards = collective in ("reduce", "reduce_scatter")
        routes = Routes.of(topology)
        if backwards:
            routes = routes.reversed()
        if collective in ("broadcast", "reduce"):
            return cls(collective, root, Demand(routes, no_symmetry(routes), [root], 1.0), backwards)
        symmetry = symmetry_of(routes)
        is_reduction = collective == "all_reduce"
        share = 1 / symmetry.order if is_reduction else 1 / topology.num_ranks
        demand = Demand(routes, symmetry, symmetry.representatives, share, is_reduction)
        return cls(collective, root, demand, backwards)

    @property
    def num_roots(self) -> int:
        return len(self.demand.roots)

    def num_chunks(self, chunks: int) -> int:
        """Return the chunks of the buffer where each root has *chunks*."""
        return chunks * self.num_roots * self.demand.symmetry.order

    def chunk_nbytes(self, nbytes: int, chunks: int) -> float:
        return nbytes / self.num_chunks(chunks)

    def schedule(self, topology: Topology, candidate: _Candidate) -> Schedule:
        """Return *candidate* as data."""
        symmetry, roots = self.demand.symmetry, self.demand.roots
        images = symmetry.ranks
        by_root = self.collective in ("all_gather", "reduce_scatter")
        chunks = candidate.num_chunks // (self.num_roots * symmetry.order)
        place: list[tuple[int, int]] = []
        seen = dict.fromkeys(roots, 0)
        for number, tree in enumerate(candidate.trees):
            place.append((tree.root, seen[tree.root] if by_root else number))
            seen[tree.root] += 1

        def chunk_of(number: int, element: int) -> int:
            own_root, position = place[number]
            if by_root:
                return int(images[element, own_root]) * chunks + position
            return element * len(candidate.trees) + position

        steps: tuple[tuple[Message, ...], ...] = messages_of(
            candidate.rounds, symmetry, chunk_of, backwards=self.backwards
        )
        return Schedule(
            name="forest",
            collective=self.collective,
            ranks=topology.num_ranks,
            chunks=candidate.num_chunks,
            root=self.root,
            network=NetworkOfSchedule(name=topology.name, digest=topology.digest()),
            made_by="Trees packed so that the fullest link carries as little as can be",
            steps=steps,
        )


def _candidates(problem: _Problem, packing: Packing, nbytes: int, tell: Tell) -> list[_Candidate]:
    """Return ways to divide into chunks and rounds, the most promising, with what they would take."""
    demand = problem.demand
    timetable = Timetable(demand)
    effort = _EFFORT if demand.routes.num_ranks <= 16 else 16 * _EFFORT
    candidates: list[_Candidate] = []
    best = float("inf")
    for plan in sorted(_plans(problem, packing, nbytes), key=lambda plan: plan.guess):
        if plan.least > best * _WORTH_TRYING:
            continue
        tell(f"timing {problem.num_chunks(plan.chunks)} chunks")
        rounds = timetable.rounds(plan.trees, plan.chunk_nbytes, plan.round_seconds, best * _WORTH_KEEPING)
        if rounds is not None:
            best = min(best, rounds.seconds)
            num_chunks = problem.num_chunks(plan.chunks)
            pairs = sum(len({(edge.source, edge.destination) for _, edge in moves}) for moves in rounds.moves)
            num_messages = pairs * demand.symmetry.order
            candidates.append(
                _Candidate(rounds.seconds, rounds, plan.trees, num_chunks, num_messages, plan.packed_seconds)
            )
        if timetable.looks > effort:
            break
    return candidates


class _Plan(NamedTuple):
    """A division into chunks and a length of rounds, before it is tried."""

    guess: float
    least: float
    chunks: int
    chunk_nbytes: float
    round_seconds: float
    trees: list[Tree]
    packed_seconds: float


def _plans(problem: _Problem, packing: Packing, nbytes: int) -> Iterator[_Plan]:
    demand = problem.demand
    num_ranks = demand.routes.num_ranks
    moves_per_chunk = (num_ranks - 1) * (2 if demand.is_reduction else 1)
    most_moves = max(16_000 if num_ranks <= 16 else 40_000, 6 * num_ranks * num_ranks)
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
        for multiple in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32):
            round_seconds = unit * first * multiple
            if packed / round_seconds > _MOST_ROUNDS or (multiple > 1 and round_seconds > packed):
                continue
            per_round = np.maximum(np.floor(round_seconds / each + 1e-6), 1)
            num_rounds = max(int(np.ceil(load * chunk_nbytes / each / per_round - 1e-6).max()), height)
            least = packed + max(packed / round_seconds, height) * delay / 4
            guess = num_rounds * (min(round_seconds, packed) + delay) + (height - 1) * round_seconds / 3
            guess *= 1 + _PER_MESSAGE * problem.num_chunks(chunks) * moves_per_chunk
            yield _Plan(guess, least, chunks, chunk_nbytes, round_seconds, trees, packed)


def _longest_delay(demand: Demand, packing: Packing) -> float:
    """Return the longest latency of an edge, in seconds."""
    return max(int(demand.routes.latency[tree.edges()].max()) for tree in packing.trees) / PICOSECONDS
