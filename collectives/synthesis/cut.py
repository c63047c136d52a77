"""The cut of a network that bounds a collective: no program, on whatever routes, can be faster.

What the ranks of a set S have of a buffer, and others need, must leave S over the links that cross its
boundary: ``T ≥ bytes of S / bandwidth out of S`` for every S that some rank is outside of.  Whether a set is
worse than a given ratio is a question of maximum flow: a source feeds every rank as much as it has, and every
rank must be able to get all of it.  The set that fails a rank is its minimum cut; its ratio is the next to be
asked about.

Source: Zhao et al., "ForestColl: Throughput-optimal collective communications on heterogeneous network
fabrics", arXiv:2402.06787, section 4; Dinkelbach, "On nonlinear fractional programming", Management Science
13(7), 1967, for the steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from collectives.synthesis.routes import working_bandwidth
from sim.topology import Topology
from sim.topology.routing import Wiring
from sim.units import Int64Array

_SCALE = 2**30
"""Of capacities in the flow, which are 32-bit integers."""


@dataclass(frozen=True)
class Bound:
    """The cut that takes longest.

    Attributes:
        seconds_per_byte: that it needs for each byte of the buffer.
        ranks: on its one side.
        links: that cross it, by number.
        outward: the bytes leave these ranks; else they enter.
    """

    seconds_per_byte: Fraction
    ranks: tuple[int, ...]
    links: tuple[int, ...]
    outward: bool


def narrowest_cut(
    topology: Topology,
    shares: Sequence[Fraction],
    *,
    outward: bool = True,
) -> Bound:
    """Return the cut that bounds a collective in which every rank needs what all ranks have.

    Args:
        topology: the network.
        shares: of the buffer that each rank has at the start.
        outward: they go out to all ranks; else all ranks' contributions to each share come in.
    """
    wiring = topology.routing.wiring()
    tail, head = (wiring.tail, wiring.head) if outward else (wiring.head, wiring.tail)
    joins = wiring.joins if outward else wiring.joins[:, ::-1]
    bandwidth = [int(rate) for rate in working_bandwidth(topology)]
    network = _Flow(wiring, tail, head, joins, bandwidth, shares)

    num_ranks = topology.num_ranks
    holders = [rank for rank, share in enumerate(shares) if share]
    worst = max(
        (network.bound_of({rank}) for rank in holders), key=lambda bound: bound.seconds_per_byte, default=None
    )
    assert worst is not None, "somebody has something"
    for sink in range(num_ranks):
        while (inside := network.failing(sink, worst.seconds_per_byte)) is not None:
            bound = network.bound_of(inside)
            if bound.seconds_per_byte <= worst.seconds_per_byte:
                break
            worst = bound
    return Bound(worst.seconds_per_byte, worst.ranks, worst.links, outward)


class _Flow:
    """The network with a source in front of the ranks."""

    def __init__(
        self,
        wiring: Wiring,
        tail: Int64Array,
        head: Int64Array,
        joins: Int64Array,
        bandwidth: list[int],
        shares: Sequence[Fraction],
    ) -> None:
        self.size = len(wiring.names) + 1
        self.tail, self.head, self.joins = tail, head, joins
        self.bandwidth = bandwidth
        self.shares = shares

    def bound_of(self, inside: set[int]) -> Bound:
        """Return what the set *inside* needs: exactly, and of the links that leave it."""
        # Vertices joined to the set carry at no cost, so they are in it.
        reached = set(inside)
        out: dict[int, list[int]] = {}
        for start, end in self.joins.tolist():
            out.setdefault(start, []).append(end)
        waiting = list(inside)
        while waiting:
            for end in out.get(waiting.pop(), ()):
                if end not in reached:
                    reached.add(end)
                    waiting.append(end)
        member = np.zeros(self.size, dtype=bool)
        member[list(reached)] = True
        leaving = np.flatnonzero(member[self.tail] & ~member[self.head]).tolist()
        crossing = [link for link in leaving if self.bandwidth[link]]
        ranks = tuple(sorted(vertex for vertex in reached if vertex < len(self.shares)))
        held = sum((self.shares[rank] for rank in ranks), Fraction(0))
        rate = sum(self.bandwidth[link] for link in crossing)
        return Bound(held / rate if rate else Fraction(0), ranks, tuple(crossing), True)

    def failing(self, sink: int, seconds_per_byte: Fraction) -> set[int] | None:
        """Return the set from which *sink* does not get all shares in the time; None: it does."""
        source = self.size - 1
        carried = np.array([rate * float(seconds_per_byte) for rate in self.bandwidth])
        held = np.array([float(share) for share in self.shares])
        holders = np.flatnonzero(held)
        tail = np.concatenate([self.tail, self.joins[:, 0], np.full(len(holders), source)])
        head = np.concatenate([self.head, self.joins[:, 1], holders])
        amount = np.concatenate([np.minimum(carried, 1.0), np.ones(len(self.joins)), held[holders]])
        capacity = np.ceil(amount * _SCALE).astype(np.int64)
        flow, reached = minimum_cut(tail, head, capacity, self.size, source, sink)
        if flow >= _SCALE * (1 - 1e-7) - len(self.bandwidth):
            return None
        return {vertex for vertex in reached.tolist() if vertex != source}


def minimum_cut(
    tail: Int64Array, head: Int64Array, capacity: Int64Array, size: int, source: int, sink: int
) -> tuple[int, Int64Array]:
    """Return the most that flows from *source* to *sink*, and the vertices on the source's side of a cut.

    Edges lead from *tail* to *head*, of *size* vertices; a *capacity* beyond 31 bits counts as so much.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    summed = csr_array((capacity, (tail, head)), shape=(size, size))
    summed.sum_duplicates()
    summed.data = np.minimum(summed.data, 2**31 - 1)
    graph = summed.astype(np.int32)
    result = maximum_flow(graph, source, sink)
    left = graph - result.flow
    left.data = np.where(left.data > 0, left.data, 0)
    left.eliminate_zeros()
    return int(result.flow_value), breadth_first_order(left, source, return_predecessors=False)
