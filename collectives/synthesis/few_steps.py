"""Few steps: for small buffers a solver divides latency and bandwidth among as few steps as pay.

SCCL (arXiv:2008.08708) asks a solver for S steps whose links carry so many chunks, that cost S·α + (R/C)·L·β.
Here each step has a latency, the longest of its messages, and a length, which says how many chunks a link may
carry; the solver is asked for less and less of their sum.  Only rank 0's chunk is decided, or one for each
orbit of ranks that are alike; the others go the same way, renumbered.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cached_property
from importlib.util import find_spec
from math import ceil, log2
from typing import Any, TypeAlias

import numpy as np

from collectives.synthesis.candidates import Candidate, Part, Problem
from collectives.synthesis.demand import Demand, Tree
from collectives.synthesis.rounds import PICOSECONDS, Edge, Rounds, edges_of

Sending: TypeAlias = tuple[int, int, int]
"""Of the chunk of a root, from a rank to another."""

MAX_RANKS = 16
"""Ranks up to which a solver is asked."""
_MOST_EDGES = 1_000
"""Of all roots whose chunks are decided: what the solver can do in a moment."""
_WORK = 400_000
"""The solver's own count of its work, for one question; the same on every machine."""
_QUESTIONS = 10
"""Asked for each number of steps."""
_BETTER = 0.98
"""Of the best so far, what the next must take at most."""
_LENGTHS = 8
"""Lengths of a step that are tried."""
_UNITS = 1e10
"""Of the solver's costs in a second."""


def has_solver() -> bool:
    """Return whether z3 is installed."""
    return find_spec("z3") is not None


def is_for(demand: Demand) -> bool:
    """Return whether a solver may be asked: not too much is to be decided, nothing reduced on the way."""
    num_ranks = demand.routes.num_ranks
    edges = len(demand.roots) * (num_ranks - 1) ** 2
    return demand.kind == "spreading" and num_ranks <= MAX_RANKS and edges <= _MOST_EDGES


def few_steps(problem: Problem, nbytes: int, below: float) -> Candidate | None:
    """Return a program of one chunk for each root that takes less than *below* seconds.

    None where the solver finds none with the work that it may do, or there would be too much to decide.
    """
    num_ranks = problem.demand.routes.num_ranks
    if not is_for(problem.demand):
        return None
    best: Candidate | None = None
    for num_steps in range(1, ceil(log2(num_ranks)) + 1):
        question = _Question(problem, nbytes, num_steps, below)
        for _ in range(_QUESTIONS):
            found = question.answer(below * _BETTER)
            if found is None:
                break
            best, below = found, min(below * _BETTER, found.estimate)
    return best


class _Question:
    """Where one chunk of each root goes in so many steps."""

    def __init__(self, problem: Problem, nbytes: int, num_steps: int, below: float) -> None:
        import z3

        self.problem = problem
        self.demand = problem.demand
        self.chunk_nbytes = problem.chunk_nbytes(nbytes, 1)
        self.num_steps = num_steps
        self.solver = z3.Solver()
        self.solver.set("rlimit", _WORK)
        self.fixed = 0.0
        self.costs: list[tuple[Any, float]] = []
        self.sent: dict[Sending, list[Any]] = {}
        for root in self.demand.roots:
            self._spread(root)
        lengths = self._lengths(below)
        for step in range(num_steps):
            self._charge_latency(step)
            self._charge_length(step, lengths)

    def answer(self, below: float) -> Candidate | None:
        """Return a program whose steps take less than *below* seconds; None if there is none, or too hard."""
        import z3

        costs = [(what, round(seconds * _UNITS)) for what, seconds in self.costs]
        allowed = round((below - self.fixed) * _UNITS)
        if allowed < 0:
            return None
        self.solver.add(z3.PbLe(costs, allowed))
        if self.solver.check() != z3.sat:
            return None
        model = self.solver.model()
        arrivals = {
            (root, destination): (step, source)
            for (root, source, destination), steps in self.sent.items()
            for step, what in enumerate(steps)
            if z3.is_true(model[what])
        }
        return self._candidate(arrivals)

    def _spread(self, root: int) -> None:
        """Demand that the chunk of *root* comes to every other rank once, from one that has it before."""
        import z3

        ranks = range(self.demand.routes.num_ranks)
        steps = range(self.num_steps)
        has = {
            rank: [z3.BoolVal(rank == root), *(z3.Bool(f"has {root} {rank} {step}") for step in steps)]
            for rank in ranks
        }
        has[root] = [z3.BoolVal(True)] * (self.num_steps + 1)
        for rank in ranks:
            if rank == root:
                continue
            arriving = []
            for source in ranks:
                if source != rank:
                    sent = [z3.Bool(f"sent {root} {source} {rank} {step}") for step in steps]
                    self.sent[root, source, rank] = sent
                    arriving.append(sent)
                    for step in steps:
                        self.solver.add(z3.Implies(sent[step], has[source][step]))
            for step in steps:
                now = [sent[step] for sent in arriving]
                self.solver.add(z3.Implies(has[rank][step + 1], z3.Or(has[rank][step], *now)))
            every = [(what, 1) for sent in arriving for what in sent]
            self.solver.add(z3.PbEq(every, 1), has[rank][self.num_steps])

    def _charge_latency(self, step: int) -> None:
        """Charge for the longest latency of what is sent in *step*."""
        import z3

        latency = self.demand.routes.latency / PICOSECONDS
        before = 0.0
        for own in np.unique(latency[~np.eye(len(latency), dtype=bool)]).tolist():
            reached = z3.Bool(f"latency {step} {own}")
            self.costs.append((reached, own - before))
            for (_, source, destination), sent in self.sent.items():
                if latency[source, destination] >= own:
                    self.solver.add(z3.Implies(sent[step], reached))
            before = own

    def _charge_length(self, step: int, lengths: list[float]) -> None:
        """Charge for the length of *step*, one of *lengths*; it bounds what links carry."""
        import z3

        crossing: defaultdict[int, Counter[Sending]] = defaultdict(Counter)
        for key in self.sent:
            crossing_links = self.demand.routes.links[key[1], key[2]]
            for orbit in self.demand.symmetry.orbit_of_link[crossing_links].tolist():
                if orbit in self.each:
                    crossing[orbit][key] += 1
        self.fixed += lengths[0]
        longer: Any = z3.BoolVal(False)
        for own, before in zip(reversed(lengths), [*reversed(lengths[:-1]), None], strict=True):
            for orbit, crossed in crossing.items():
                most = int(own / self.each[orbit] * (1 + 1e-9))
                load = [(self.sent[key][step], times) for key, times in crossed.items()]
                self.solver.add(z3.Or(longer, z3.PbLe(load, most)))
            if before is not None:
                reached = z3.Bool(f"length {step} {own}")
                self.solver.add(z3.Implies(longer, reached))
                self.costs.append((reached, own - before))
                longer = reached

    @cached_property
    def each(self) -> dict[int, float]:
        """Seconds that a chunk, and those alike, take on a link of each orbit."""
        orbits = self.demand.symmetry.orbit_of_link[:-1].tolist()
        seconds = (self.demand.link_seconds() * self.chunk_nbytes).tolist()
        return dict(zip(orbits, seconds, strict=True))

    def _lengths(self, below: float) -> list[float]:
        """Return lengths that a step may have: of whole numbers of chunks on some link, below *below*."""
        most = self.demand.routes.num_ranks * len(self.demand.roots)
        all_of_them = {count * own for own in self.each.values() for count in range(1, most + 1)}
        shorter = sorted(own for own in all_of_them if own < below) or [below]
        wanted = np.geomspace(shorter[0], shorter[-1] * (1 + 1e-9), _LENGTHS)
        return sorted({shorter[place - 1] for place in np.searchsorted(shorter, wanted, side="right")})

    def _candidate(self, arrivals: dict[tuple[int, int], tuple[int, int]]) -> Candidate:
        """Return the program in which ranks get chunks at those steps, from those ranks."""
        moves: list[list[tuple[int, Edge]]] = [[] for _ in range(self.num_steps)]
        trees = []
        for number, root in enumerate(self.demand.roots):
            parent = np.full(self.demand.routes.num_ranks, -1, dtype=np.int64)
            for (own, rank), (_, source) in arrivals.items():
                if own == root:
                    parent[rank] = source
            trees.append(Tree(root, parent))
            for edge in edges_of(self.demand, trees[-1]):
                moves[arrivals[root, edge.destination][0]].append((number, edge))
        used = [tuple(step) for step in moves if step]
        seconds = 0.0
        for step in used:
            load: defaultdict[int, float] = defaultdict(float)
            for _, edge in step:
                for orbit, more in edge.uses:
                    load[orbit] += more
            seconds += max(load.values()) * self.chunk_nbytes + max(edge.latency for _, edge in step)
        part = Part(self.problem, Rounds(tuple(used), seconds), trees)
        pairs = sum(len({(edge.source, edge.destination) for _, edge in step}) for step in used)
        loads = sum(self.demand.loads(tree) for tree in trees)
        return Candidate(
            seconds,
            (part,),
            self.problem.num_chunks(1),
            pairs * self.demand.symmetry.order,
            float(np.max(loads)) * self.chunk_nbytes,
        )
