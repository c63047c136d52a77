"""Synthesis of a program for a network: trees, chunks and rounds by plan, the best of them by simulation.

A packing of trees (`collectives.synthesis.packing`) says how fast the fullest link allows; how many chunks go
on the trees and how long a round lasts decides what latency and the ends of a pipeline add.  A few
combinations are estimated, the best simulated, and the winner is held against the programs that ship,
channels included.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from collectives.catalogue.admission import admitted
from collectives.errors import CollectiveError, NotSupportedError
from collectives.formats.schedule_file import Schedule
from collectives.program import Algorithm
from collectives.synthesis.candidates import Candidate, Tell
from collectives.synthesis.cut import Bound
from collectives.synthesis.demand import Demand
from collectives.synthesis.packing import Packing
from collectives.synthesis.rounds import PICOSECONDS
from collectives.synthesis.search import search
from collectives.timing import simulate
from collectives.timing.cost import Cheapest
from collectives.timing.floor import floor_ps
from sim.topology import Topology

COLLECTIVES = ("all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce", "all_to_all")
"""What programs are made for."""

MAX_RANKS = 512
SIMULATED = 3
"""Programs that ship that are simulated: those of the least estimated cost."""

_MOST_SIMULATED = 10
_NEAR_ENOUGH = 1.015
"""Of what the trees need at least: beyond that no other candidate is simulated."""
_MOST_MESSAGES = 12_000
"""Messages of candidates that are simulated, up to 16 ranks; four times as many above, the best always."""


@dataclass(frozen=True)
class Synthesis:
    """What was made, beside what there was.

    Attributes:
        collective: that it carries out.
        nbytes: of the buffer, as nccl-tests counts it.
        schedule: the program that was made, as data.
        algorithm: the same, to be run.
        seconds: that it takes, simulated.
        optimum_seconds: that no program can go below.
        by: ``cut``; ``routes``, no messages on the network's routes are faster; ``trees``, no reduction on
            trees that then go out on trees is; or ``floor`` (see `collectives.timing.floor`).
        cut: the cut that needs longest.
        prices: of links, by number, their sum 1, that prove what no program of trees, or paths, on the
            network's routes can go below, where that is longer than the cut.
        packed_seconds: that the fullest link needs for the trees as they were divided.
        shipped: the best program that ships; None where none runs here.
        shipped_seconds: that it takes, simulated.
        num_trees: different trees of each root, on average; of an all-reduce in all, those alike once; of an
            all-to-all paths of each pair.
        few_trees: for numbers of trees of each root, where that is known: that bound, as a part of what
            the fullest link needs for so many.
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
    prices: dict[int, float]
    packed_seconds: float
    shipped: Algorithm | None
    shipped_seconds: float | None
    num_trees: float
    few_trees: dict[int, float]
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

    def best_schedule(self) -> Schedule:
        """Return that as data, for this number of ranks."""
        if self.shipped is None or not self.shipped_is_faster:
            return self.schedule
        return Schedule.of(self.shipped, self.schedule.ranks, self.schedule.network)

    @property
    def best_seconds(self) -> float:
        """The time of that."""
        return self.seconds if self.shipped_seconds is None else min(self.seconds, self.shipped_seconds)


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
    found = search(topology, collective, nbytes, root, tell)
    packing, cut = found.packing, found.cut

    best: tuple[float, Schedule, Algorithm, Candidate] | None = None
    messages = 0
    for candidate in found.candidates[:_MOST_SIMULATED]:
        messages += candidate.num_messages
        if best is not None and messages > _MOST_MESSAGES * (1 if topology.num_ranks <= 16 else 4):
            continue
        tell(f"simulating a candidate of {candidate.num_chunks} chunks")
        schedule = candidate.schedule(topology, collective, root)
        algorithm = schedule.algorithm()
        seconds = simulate(algorithm, nbytes=nbytes, topology=topology).seconds
        if best is None or seconds < best[0]:
            best = seconds, schedule, algorithm, candidate
        if seconds <= packing.bound * nbytes * _NEAR_ENOUGH:
            break
    assert best is not None
    seconds, schedule, algorithm, candidate = best

    tell("simulating the programs that ship")
    shipped, shipped_seconds = best_shipped(topology, collective, nbytes, root)
    cut_seconds = float(cut.seconds_per_byte * nbytes)
    floor = floor_ps(collective, nbytes, topology, root) / PICOSECONDS
    bounds = {
        "cut": cut_seconds * (1 + 1e-6),  # the simplest of equal reasons
        "trees" if collective == "all_reduce" else "routes": packing.bound * nbytes,
        "floor": floor,
    }
    by = max(bounds, key=lambda name: bounds[name])
    trees = [tree for part in candidate.parts for tree in part.trees]
    different = len({id(tree) for tree in trees})
    return Synthesis(
        collective=collective,
        nbytes=nbytes,
        schedule=schedule,
        algorithm=algorithm,
        seconds=seconds,
        optimum_seconds=cut_seconds if by == "cut" else bounds[by],
        by=by,
        cut=cut,
        prices=_prices_of_links(found.problem.demand, packing),
        packed_seconds=candidate.packed_seconds,
        shipped=shipped,
        shipped_seconds=shipped_seconds,
        num_trees=different / found.problem.demand.num_groups,
        few_trees={trees: packing.bound / seconds for trees, seconds in found.few.items()},
        num_chunks=candidate.num_chunks,
        num_steps=len(schedule.steps),
        height=sum(max(tree.height for tree in part.trees) for part in candidate.parts),
        order=found.problem.demand.symmetry.order,
        search_seconds=time.monotonic() - began,
    )


def _prices_of_links(demand: Demand, packing: Packing) -> dict[int, float]:
    symmetry = demand.symmetry
    of_links = (packing.prices / symmetry.orbit_sizes)[symmetry.orbit_of_link[:-1]]
    return {link: float(price) for link, price in enumerate(of_links) if price > 1e-6}


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
