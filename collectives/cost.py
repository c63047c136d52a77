"""What a collective costs on a network, estimated without simulating it: α, β, γ and contention.

All ranks take step k together.  A step lasts as long as the largest latency of its messages, plus
what its busiest link needs for the bytes of all messages that cross it, plus what its busiest rank
needs to reduce what it receives:

    T(n) = Σ_steps ( max α  +  n · max over links (share of n on the link / bandwidth)
                            +  n · max over ranks (share of n reduced) · γ )

That is linear in n, so it is worked out once for an algorithm and a network.  It equals the
simulated time where ranks do stay in step and no two messages of a step are unequal, as for a ring on a
switch; elsewhere it is an estimate, good for a choice between algorithms and for nothing else.
Chunks are taken to divide n evenly, and no step to be empty, so tiny sizes are overestimated.

Source: the α–β–γ model of Thakur, Rabenseifner and Gropp, IJHPCA 19(1), 2005; that a step lasts as long
as its most congested link takes is how De Sensi et al., "Swing", NSDI 2024, compare algorithms on tori.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from collectives.algorithms import ALGORITHMS
from collectives.choice import Choice, Selector, Table, fixed, parse_auto
from collectives.errors import NotExactError, NotSupportedError
from collectives.placement import on_nodes
from collectives.program import Algorithm, Send, Step
from collectives.rows import Int64Array, over_ranks, rows_of
from sim.topology import Topology
from sim.units import SECOND, parse_bandwidth

MAX_MESSAGES = 4_000_000
"""Messages of one collective up to which its cost is worked out."""


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
    """The shipped algorithm that costs least on a network, by size; a `collectives.choice.Selector`.

    Args:
        topology: the network.
        hosts: the place of each rank of the group in the topology; by default rank r is at r.
        reduction_bandwidth: bytes/s at which a rank reduces; None: reducing costs no time.
    """

    def __init__(
        self,
        topology: Topology,
        hosts: Sequence[int] | None = None,
        reduction_bandwidth: int | None = None,
    ) -> None:
        self.topology = topology
        self.hosts = range(topology.num_ranks) if hosts is None else hosts
        self.reduction_bandwidth = reduction_bandwidth
        self._costs: dict[str, list[tuple[LinearCost, Algorithm]]] = {}

    def select(self, collective: str, nbytes: int) -> Algorithm:
        """Return the algorithm whose estimate for *nbytes* bytes is least; the first of equals."""
        return min(self.costs(collective), key=lambda candidate: candidate[0].seconds(nbytes))[1]

    def costs(self, collective: str) -> list[tuple[LinearCost, Algorithm]]:
        """Return the shipped algorithms for *collective* that run on these ranks, with their costs.

        Left out are those whose cost is not worked out because they send too many messages.
        """
        if collective not in self._costs:
            self._costs[collective] = list(self._work_out(collective))
        return self._costs[collective]

    def _work_out(self, collective: str) -> Iterator[tuple[LinearCost, Algorithm]]:
        for shipped in ALGORITHMS:
            if shipped.collective != collective:
                continue
            candidate = on_nodes(shipped, self.topology.ranks_per_node, self.hosts)
            with suppress(NotSupportedError, NotExactError):
                yield linear_cost(candidate, self.topology, self.hosts, self.reduction_bandwidth), candidate


def selector_on(topology: Topology, choice: Choice, hosts: Sequence[int] | None = None) -> Selector:
    """Return what *choice* means for ranks at *hosts* of *topology*; by default all ranks.

    Raises:
        UnknownAlgorithmError, AlgorithmFileError: see `collectives.choice.fixed`.
        NotSupportedError: a table was measured with another number of ranks.
        UnitError: a reduction bandwidth cannot be read.
    """
    places = tuple(range(topology.num_ranks) if hosts is None else hosts)

    def bind(algorithm: Algorithm) -> Algorithm:
        return on_nodes(algorithm, topology.ranks_per_node, places)

    auto = parse_auto(choice)
    if auto is None:
        return fixed(choice).bound(bind)
    if auto.table is not None:
        return Table(auto.table, len(places), bind=bind).without_native()
    return _cheapest(topology, places, auto.reduction_bandwidth)


@lru_cache(maxsize=64)  # one for all ranks and calls; a topology is compared by identity
def _cheapest(topology: Topology, places: tuple[int, ...], reduction_bandwidth: str | None) -> Cheapest:
    if reduction_bandwidth is None:
        return Cheapest(topology, places)
    return Cheapest(topology, places, parse_bandwidth(reduction_bandwidth, "reduction_bandwidth"))


def linear_cost(
    algorithm: Algorithm,
    topology: Topology,
    hosts: Sequence[int] | None = None,
    reduction_bandwidth: int | None = None,
) -> LinearCost:
    """Return what *algorithm* costs on *topology*.

    Args:
        algorithm: the program of every rank.
        topology: the network.
        hosts: the place of each rank of the group in the topology; by default rank r is at r.
        reduction_bandwidth: bytes/s at which a rank reduces, 1/γ; None: reducing costs no time.

    Raises:
        NotExactError: it sends more than `MAX_MESSAGES` messages, or has no array form and is too
            long to be stacked.
        NotSupportedError: the program refuses this number of ranks.
    """
    places = np.arange(topology.num_ranks) if hosts is None else np.asarray(hosts)
    num_chunks = algorithm.num_chunks(len(places))
    latency_ps, busy, reduced, num_messages = 0, 0.0, 0, 0
    for row in rows_of(algorithm, len(places)):
        source, destination, chunks = _messages(row, len(places))
        num_messages += len(source)
        if num_messages > MAX_MESSAGES:
            raise NotExactError(
                f"{algorithm} sends more than {MAX_MESSAGES} messages among {len(places)} ranks"
            )
        if len(source):
            links = topology.routes(places[source], places[destination])
            used = links >= 0
            latencies = np.where(used, topology.link_latency[links], 0).sum(axis=1)
            latency_ps += int(latencies.max())
            weights = np.broadcast_to(chunks[:, None], links.shape)[used]
            load = np.bincount(links[used], weights=weights, minlength=topology.num_links)
            busy += float((load / topology.link_bandwidth).max())
        reduced += _max_reduced(row, len(places))
    gamma = reduced / reduction_bandwidth if reduction_bandwidth else 0.0
    return LinearCost(latency_ps / SECOND, (busy + gamma) / num_chunks)


def _messages(row: Step, num_ranks: int) -> tuple[Int64Array, Int64Array, Int64Array]:
    """Return source, destination and number of chunks of every message that *row* sends."""
    found = [np.zeros((3, 0), dtype=np.int64)]
    for operation in row:
        if isinstance(operation, Send):
            ranks = np.flatnonzero(over_ranks(operation.when, num_ranks))
            peers, chunks = (over_ranks(v, num_ranks)[ranks] for v in (operation.peer, operation.num_chunks))
            found.append(np.stack([ranks, peers, chunks]))
    source, destination, chunks = np.concatenate(found, axis=1)
    return source, destination, chunks


def _max_reduced(row: Step, num_ranks: int) -> int:
    """Return how many chunks the busiest rank reduces in *row*."""
    reduced = np.zeros(num_ranks, dtype=np.int64)
    for operation in row:
        if operation.reduces:
            reduced += np.where(operation.when, operation.num_chunks, 0)
    return int(reduced.max(initial=0))
