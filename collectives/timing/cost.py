"""Cost of a collective on a network, estimated without simulating it: α, β, γ and contention.

All ranks take step k together.  A step lasts as long as the overhead of the rank with most messages,
plus the largest latency of its messages, plus what its busiest link needs for the bytes of all messages
that cross it, plus what its busiest rank needs to reduce what it receives:

    T(n) = Σ_steps ( launch  +  max over ranks (messages) · o  +  max over ranks (posted) · p  +  max α
                     +  n · max over links (share of n on the link / bandwidth)
                     +  n · max over ranks (share of n reduced) · γ )

That is linear in n, so it is worked out once for an algorithm and a network.  It equals the
simulated time where ranks do stay in step and no two messages of a step are unequal, as for a ring on a
switch; elsewhere it is an estimate, good for a choice between algorithms and for nothing else.
Chunks are taken to divide n evenly, and no step to be empty, so tiny sizes are overestimated.

Source: the α–β–γ model of Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005; that a step lasts as long
as its most congested link takes is how De Sensi et al., "Swing", NSDI 2024, compare algorithms on tori.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np

from collectives.algorithms import ALGORITHMS
from collectives.catalogue.admission import admitted
from collectives.catalogue.selectors import NCCL, Choice, Selector, fixed, parse_auto
from collectives.errors import NotExactError, NotSupportedError
from collectives.program import Algorithm
from collectives.program.channels import in_channels, num_orders
from collectives.program.chunking import Chunking
from collectives.program.placement import on_nodes
from collectives.program.program import Step
from collectives.timing.formulas.nccl.choice import ChosenByNccl
from collectives.timing.rows.pattern import Pattern, patterned_rows, reduced_nbytes
from collectives.timing.rows.repeated_rows import kept_rows
from collectives.timing.rows.sizes import MostlyEqual, Sizes, of_each
from sim.scenario.rank_overhead import RankOverhead
from sim.topology import Topology
from sim.units import SECOND, Int64Array, parse_bandwidth

MAX_MESSAGES = 4_000_000
"""Messages of one collective up to which its cost is worked out; of rows that repeat, those of the first."""

MAX_ROW_MESSAGES = 200_000
"""Messages of one step of all ranks up to which a program is weighed: no rank has hundreds under way at once.
All-to-all, of which every program has so many, is weighed up to `MAX_MESSAGES`."""

MAX_KEPT_RANKS = 16
"""Up to which all rows of a program are kept, as many groups carry it out; beyond, few need all of them."""

IN_CHANNELS = ("ring", "double_binary_tree")
"""Algorithms that are weighed in 2, 4, 8, … channels, too: those that NCCL runs in channels."""

_NO_BETTER = 1 + 1e-9
"""A candidate is better than one before it only beyond what rounding may add."""


@dataclass(frozen=True, slots=True)
class LinearCost:
    """The estimate as a line: ``latency + nbytes · per_byte``.

    Attributes:
        latency: seconds, whatever the size.
        per_byte: seconds for each byte of the buffer.
    """

    latency: float
    per_byte: float

    def seconds(self, nbytes: int) -> float:
        """Return the estimate for a buffer of *nbytes* bytes."""
        return self.latency + nbytes * self.per_byte


class Cheapest:
    """The shipped algorithm that costs least on a network, by size; a `Selector`.

    Args:
        topology: the network.
        hosts: the place of each rank of the group in the topology; by default rank r is at r.
        rank_overhead: what ranks add to the time of the network: overhead (o) and reduction (γ) count.
    """

    def __init__(
        self,
        topology: Topology,
        hosts: Sequence[int] | None = None,
        rank_overhead: RankOverhead | None = None,
    ) -> None:
        self.topology = topology
        self.hosts = range(topology.num_ranks) if hosts is None else hosts
        self.rank_overhead = rank_overhead or RankOverhead()
        self._candidates: dict[str, list[_Reckoning]] = {}
        self._chosen: dict[tuple[str, int], Algorithm] = {}
        self._turn = threading.RLock()  # ranks are threads, and share this

    def select(self, collective: str, nbytes: int) -> Algorithm:
        """Return the algorithm whose estimate for *nbytes* bytes is least; the first of equals.

        What rows of a program cost so far is a floor of what all do.  The candidate with the lowest floor is
        reckoned on, row by row, until that is one whose cost is whole; nothing else can be less.
        """
        if (collective, nbytes) not in self._chosen:
            with self._turn:
                chosen = self._least(self._of(collective), collective, nbytes)
                self._chosen[collective, nbytes] = chosen
        return self._chosen[collective, nbytes]

    def _least(self, candidates: Sequence[_Reckoning], collective: str, nbytes: int) -> Algorithm:
        floors = [(own.line.seconds(nbytes), place) for place, own in enumerate(candidates)]
        heapq.heapify(floors)
        while floors and not candidates[floors[0][1]].is_whole:
            place = floors[0][1]
            if candidates[place].go_on():
                heapq.heapreplace(floors, (candidates[place].line.seconds(nbytes), place))
            else:
                heapq.heappop(floors)
        if not floors:
            raise NotSupportedError(
                f"auto: no algorithm for {collective} has a cost on {self.topology.name} that can be "
                "reckoned; name one"
            )
        least = floors[0][0]
        bound = max(least, least * _NO_BETTER)  # a cost of nothing may come out a little below 0
        return next(own.algorithm for own in candidates if own.is_within(nbytes, bound))

    def is_less(self, part: float, algorithm: Algorithm, collective: str, nbytes: int) -> bool:
        """Return whether the least estimate for *nbytes* bytes is below *part* of that of *algorithm*."""
        chosen = self.select(collective, nbytes)
        with self._turn:
            least = next(own.line for own in self._of(collective) if own.algorithm is chosen).seconds(nbytes)
        ours = _Reckoning(algorithm, self.topology, self.hosts, self.rank_overhead, MAX_MESSAGES)
        while not ours.is_whole and least >= part * ours.line.seconds(nbytes):
            ours.take_row()
        return least < part * ours.line.seconds(nbytes)

    def costs(self, collective: str) -> list[tuple[LinearCost, Algorithm]]:
        """Return the shipped algorithms for *collective* that run on these ranks, with their costs.

        Behind them are those of `IN_CHANNELS` in as many channels as visit the ranks in different orders.
        Left out are those whose cost is not worked out because they send too many messages.
        """
        with self._turn:
            return [(own.line, own.algorithm) for own in self._of(collective) if own.finish()]

    def _of(self, collective: str) -> list[_Reckoning]:
        """Return the candidates, each as far as it has been reckoned."""
        if collective not in self._candidates:
            shipped = [own for own in ALGORITHMS if own.collective == collective]
            most = MAX_MESSAGES if collective == "all_to_all" else MAX_ROW_MESSAGES
            found = self._candidates[collective] = []
            for candidate in (*shipped, *self._in_channels(shipped)):
                bound = on_nodes(candidate, self.topology.ranks_per_node, self.hosts)
                with suppress(NotSupportedError, NotExactError):
                    found.append(_Reckoning(bound, self.topology, self.hosts, self.rank_overhead, most))
        return self._candidates[collective]

    def _in_channels(self, shipped: Sequence[Algorithm]) -> Iterator[Algorithm]:
        """Yield those of *shipped* that are weighed in channels, in each number of them."""
        orders = num_orders(self.hosts, self.topology.ranks_per_node)
        for own in shipped:
            channels = 2
            while own.name in IN_CHANNELS and channels <= orders:
                yield in_channels(own, channels)
                channels *= 2


def selector_on(
    topology: Topology,
    choice: Choice,
    hosts: Sequence[int] | None = None,
    rank_overhead: RankOverhead | None = None,
) -> Selector:
    """Return what *choice* means for ranks at *hosts* of *topology*, by default all.

    Raises:
        UnknownAlgorithmError, AlgorithmFileError: see `collectives.catalogue.selectors.fixed`.
        NotSupportedError: a table was measured with another number of ranks; or NCCL's choice is asked for
            on a network that does not say what its hardware is.
        ProgramError: an algorithm that is not shipped is wrong.
        UnitError: a reduction bandwidth cannot be read.
    """
    places = tuple(range(topology.num_ranks) if hosts is None else hosts)

    def bind(algorithm: Algorithm) -> Algorithm:
        return admitted(on_nodes(algorithm, topology.ranks_per_node, places), len(places))

    auto = parse_auto(choice)
    if choice == NCCL:
        return _chosen_by_nccl(topology, places, (rank_overhead or RankOverhead()).in_one_kernel())
    if auto is None:
        return fixed(choice).bound(bind)
    if auto.table is not None:
        from collectives.catalogue.measured_times import Table

        return Table(auto.table, len(places), bind=bind).without_native()
    rank_overhead = rank_overhead or RankOverhead()
    if auto.reduction_bandwidth is not None:
        rate = parse_bandwidth(auto.reduction_bandwidth, "reduction_bandwidth")
        rank_overhead = replace(rank_overhead, reduction_bandwidth=rate)
    return _cheapest(topology, places, rank_overhead)


@lru_cache(maxsize=64)  # one for all ranks and calls; a topology is compared by identity
def _cheapest(topology: Topology, places: tuple[int, ...], rank_overhead: RankOverhead) -> Cheapest:
    return Cheapest(topology, places, rank_overhead)


@lru_cache(maxsize=64)
def _chosen_by_nccl(topology: Topology, places: tuple[int, ...], rank_overhead: RankOverhead) -> ChosenByNccl:
    return ChosenByNccl(topology, places, _cheapest(topology, places, rank_overhead))


def linear_cost(
    algorithm: Algorithm,
    topology: Topology,
    hosts: Sequence[int] | None = None,
    rank_overhead: RankOverhead | None = None,
) -> LinearCost:
    """Return what *algorithm* costs on *topology*.

    Args:
        algorithm: the program of every rank.
        topology: the network.
        hosts: the place of each rank of the group in the topology; by default rank r is at r.
        rank_overhead: what ranks add to the time of the network: overhead and reduction count.

    Raises:
        NotExactError: it sends more than `MAX_MESSAGES` messages, has no array form and is too
            long to be stacked, or its sends and receives do not match row by row.
        NotSupportedError: the program refuses this number of ranks.
    """
    reckoning = _Reckoning(algorithm, topology, hosts, rank_overhead or RankOverhead(), MAX_MESSAGES)
    while not reckoning.is_whole:
        reckoning.take_row()
    return reckoning.line


class _Reckoning:
    """The cost of an algorithm, worked out row by row; see `linear_cost` for arguments and errors.

    Attributes:
        algorithm: whose cost it is.
        is_whole: whether all rows have been taken.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        topology: Topology,
        hosts: Sequence[int] | None,
        rank_overhead: RankOverhead,
        max_row_messages: int,
    ) -> None:
        self.algorithm, self.is_whole = algorithm, False
        self._topology, self._rank_overhead = topology, rank_overhead
        self._places = np.arange(topology.num_ranks) if hosts is None else np.asarray(hosts)
        num_ranks = len(self._places)
        self._num_chunks = algorithm.num_chunks(num_ranks)
        self._in_chunks = Chunking.of(algorithm, num_ranks, self._num_chunks, 1)
        self._rows = _rows_of(algorithm, num_ranks, max_row_messages)
        self._latency_ps, self._busy, self._reduced, self._num_messages = 0, 0.0, 0, 0
        self._crowd: _Crowd | None = None
        self._is_refused = False

    @property
    def line(self) -> LinearCost:
        """What the rows taken so far cost, below which all cannot be."""
        rate = self._rank_overhead.reduction_bandwidth
        gamma = self._reduced / rate if rate else 0.0
        return LinearCost(self._latency_ps / SECOND, (self._busy + gamma) / self._num_chunks)

    def go_on(self) -> bool:
        """Take the next row; return whether the algorithm can still be chosen."""
        try:
            self.take_row()
        except (NotSupportedError, NotExactError):
            self._is_refused = True
        return not self._is_refused

    def finish(self) -> bool:
        """Take all rows; return whether the algorithm can be chosen."""
        while not self.is_whole and not self._is_refused:
            self.go_on()
        return not self._is_refused

    def is_within(self, nbytes: int, bound: float) -> bool:
        """Return whether the cost of *nbytes* is at most *bound*, taking as many rows as that needs."""
        while not self.is_whole and not self._is_refused and self.line.seconds(nbytes) <= bound:
            self.go_on()
        return self.is_whole and self.line.seconds(nbytes) <= bound

    def take_row(self) -> None:
        """Count the next row in; after the last one the cost is whole."""
        taken = next(self._rows, None)
        if taken is None:
            self.is_whole = True
            return
        row, pattern = taken
        sizes, crowd = pattern.nbytes(row, self._in_chunks), self._crowd
        is_repeated = crowd is not None and crowd.pattern is pattern and isinstance(sizes, MostlyEqual)
        self._num_messages += len(row) if is_repeated else len(pattern.source)
        if crowd is None or crowd.pattern is not pattern:
            crowd = self._crowd = _Crowd(pattern, self._topology, self._places)
        if self._num_messages > MAX_MESSAGES:
            raise NotExactError(
                f"{self.algorithm} sends more than {MAX_MESSAGES} messages among {len(self._places)} ranks"
            )

        overhead = self._rank_overhead
        self._latency_ps += crowd.latency_ps + crowd.most_messages * overhead.overhead_ps
        if crowd.most_messages:
            self._latency_ps += overhead.step_ps + overhead.arrival_overhead_ps
        self._latency_ps += crowd.most_posted * overhead.posting_ps
        self._busy += crowd.busy(sizes)
        if overhead.reduction_bandwidth is not None:
            self._reduced += int(reduced_nbytes(row, len(self._places), self._in_chunks).max(initial=0))


def _rows_of(algorithm: Algorithm, num_ranks: int, max_row_messages: int) -> Iterator[tuple[Step, Pattern]]:
    """Yield the rows of `kept_rows`: of few ranks those that are kept, else one after another."""
    num_rows = 0
    if num_ranks > MAX_KEPT_RANKS:
        try:
            for row in patterned_rows(algorithm, num_ranks, max_row_messages):
                yield row
                num_rows += 1
            return
        except NotExactError:
            pass  # programs that are kept may have larger rows
    yield from islice(kept_rows(algorithm, num_ranks, max_row_messages), num_rows, None)


class _Crowd:
    """The messages of rows of one pattern on the links.

    Attributes:
        pattern: who sends to whom.
        latency_ps: the largest of a message.
        most_messages: that a rank sends and receives.
        most_posted: that a rank sends to other nodes.
    """

    def __init__(self, pattern: Pattern, topology: Topology, places: Int64Array) -> None:
        self.pattern = pattern
        self.latency_ps = self.most_messages = self.most_posted = 0
        self._busiest = 0.0
        self._bandwidth = topology.link_bandwidth
        if not len(pattern.source):
            return
        ends = places[pattern.source], places[pattern.destination]
        self._links = topology.routes(*ends, pattern.channel)
        self._used = self._links >= 0
        if topology.sharing is not None:
            flows = np.bincount(self._links[self._used], minlength=topology.num_links)
            self._bandwidth = topology.sharing.bandwidths(topology.link_bandwidth, flows)
        self.latency_ps = int(np.where(self._used, topology.link_latency[self._links], 0).sum(axis=1).max())
        self.most_messages = int(np.bincount(np.concatenate([pattern.source, pattern.destination])).max())
        nodes = places // topology.ranks_per_node
        posted = pattern.source[nodes[pattern.source] != nodes[pattern.destination]]
        self.most_posted = int(np.bincount(posted).max(initial=0))
        self._busiest = self._load(np.ones(len(pattern.source)))

    def busy(self, chunks: Sizes) -> float:
        """Return what the busiest link needs for messages of so many *chunks*, for each byte of a chunk."""
        if isinstance(chunks, MostlyEqual):
            return self._busiest * chunks.common
        each = of_each(chunks, len(self.pattern.source))
        return self._load(each) if len(each) else 0.0

    def _load(self, weights: Any) -> float:
        crossing = np.broadcast_to(weights[:, None], self._links.shape)[self._used]
        load = np.bincount(self._links[self._used], weights=crossing, minlength=len(self._bandwidth))
        return float((load / self._bandwidth).max())
