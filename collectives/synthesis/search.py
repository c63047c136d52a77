"""Search: the bound of a collective, packings that come near, and the most promising candidates of them."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from collectives.synthesis.candidates import Candidate, Problem, Tell, candidates_of
from collectives.synthesis.cut import Bound, narrowest_cut
from collectives.synthesis.exchange_cut import exchange_cut, likely_sets, sets_by_distance
from collectives.synthesis.few_steps import few_steps, has_solver
from collectives.synthesis.few_trees import few_trees
from collectives.synthesis.packing import Packing, pack, packings
from collectives.synthesis.rounds import PICOSECONDS
from collectives.timing.floor import floor_ps
from sim.topology import Topology

FEW = (1, 2, 4, 8)
"""Trees of each root that are also tried, where there are few roots."""
_MOST_FEW_TREES = 16
_LATE = 1.25
"""Times as long as trees need: beyond that latency matters, and few steps may be faster."""
_FEW_UP_TO = 32
"""Ranks up to which they are looked for."""


@dataclass(frozen=True)
class Found:
    """What a search found.

    Attributes:
        problem: that was to be solved.
        packing: the best, of as many trees as it takes.
        cut: that needs longest.
        few: seconds for each byte that the fullest link needs, for numbers of trees of each root.
        candidates: the most promising first.
    """

    problem: Problem
    packing: Packing
    cut: Bound
    few: dict[int, float]
    candidates: list[Candidate]


def search(topology: Topology, collective: str, nbytes: int, root: int, tell: Tell) -> Found:
    """Return what is found for *collective* on *nbytes* bytes on *topology*."""
    problem = Problem.of(topology, collective, root)
    demand = problem.demand
    tell("looking for the cut that bounds")
    cut = cut_of(topology, collective, root)
    floor = floor_ps(collective, nbytes, topology, root) / PICOSECONDS / nbytes
    tell("packing trees")
    enough = max(float(cut.seconds_per_byte), floor * (1 - 1e-6))
    level = int(demand.routes.latency.max()) / PICOSECONDS / nbytes
    packing, *shallow = packings(demand, enough=enough, level=level)
    if collective == "all_to_all":
        near = exchange_cut(topology, sets_by_distance(demand, packing.prices))
        cut = max(cut, near, key=lambda bound: bound.seconds_per_byte)

    candidates = candidates_of(problem, packing, nbytes, tell)
    for own in shallow:
        candidates += candidates_of(problem, own, nbytes, tell)
    best = min(own.estimate for own in candidates)
    few: dict[int, float] = {}
    for trees in FEW if topology.num_ranks <= _FEW_UP_TO else ():
        if demand.kind == "spreading" and trees * len(demand.roots) <= _MOST_FEW_TREES:
            own = few_trees(demand, trees, packing)
            few[trees] = own.seconds_per_byte
            if own.seconds_per_byte * nbytes < best:
                candidates += candidates_of(problem, own, nbytes, tell)
                best = min(own.estimate for own in candidates)
    if best > packing.bound * nbytes * _LATE and has_solver():
        tell("asking a solver for few steps")
        quick = few_steps(problem, nbytes, best)
        candidates += [] if quick is None else [quick]
    if collective == "all_reduce":
        candidates += _in_a_row(topology, nbytes, tell, best)
    candidates.sort(key=Candidate.worth)
    return Found(problem, packing, cut, few, candidates)


def cut_of(topology: Topology, collective: str, root: int) -> Bound:
    """Return the cut that bounds *collective*; of an all-reduce, that of the all-gather in it.

    Of an all-to-all it is the worst of those that are likely.
    """
    num_ranks = topology.num_ranks
    if collective == "all_to_all":
        return exchange_cut(topology, likely_sets(topology))
    if collective in ("broadcast", "reduce"):
        shares = [Fraction(int(rank == root)) for rank in range(num_ranks)]
    else:
        shares = [Fraction(1, num_ranks)] * num_ranks
    outward = collective not in ("reduce", "reduce_scatter")
    return narrowest_cut(topology, shares, outward=outward)


def _in_a_row(topology: Topology, nbytes: int, tell: Tell, best: float) -> list[Candidate]:
    """Return reduce-scatters, each with an all-gather after it, unless that takes above *best* seconds."""
    halves = []
    cuts = {name: cut_of(topology, name, 0) for name in ("reduce_scatter", "all_gather")}
    if float(sum(cut.seconds_per_byte for cut in cuts.values())) * nbytes > best:
        return []
    for collective, cut in cuts.items():
        problem = Problem.of(topology, collective, 0)
        packing = pack(problem.demand, enough=float(cut.seconds_per_byte))
        best_of: dict[int, Candidate] = {}
        for own in sorted(candidates_of(problem, packing, nbytes, tell), key=Candidate.worth):
            best_of.setdefault(own.num_chunks, own)
        halves.append(best_of)
    return [
        Candidate(
            scatter.estimate + gather.estimate,
            scatter.parts + gather.parts,
            num_chunks,
            scatter.num_messages + gather.num_messages,
            scatter.packed_seconds + gather.packed_seconds,
        )
        for num_chunks, scatter in halves[0].items()
        if (gather := halves[1].get(num_chunks)) is not None
    ]
