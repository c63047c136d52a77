"""What no algorithm can go below on a network: a floor under every prediction.

The floor is the larger of two bounds, both without in-network reduction.

*Latency*: what rank 0 has must reach the rank that is farthest from it.

*Bandwidth*, over cuts of the network into g groups (each rank alone, each node).  Of n bytes a
group must take in and give out a certain part, and all groups together must give out a certain
amount, whatever the algorithm:

    all_reduce      each takes in and gives out n; together 2(g-1)·n, as g-1 merges and
                    g-1 deliveries of every element cross a boundary
    reduce_scatter  each gives out what it does not keep, takes in what it keeps; together (g-1)·n
    all_gather      each takes in what it has not got, gives out what it has; together (g-1)·n
    broadcast       each but the root's takes in n, the root's gives out n; together (g-1)·n

Sources: Patarasuk and Yuan, JPDC 69(2), 2009; Chan, Heimlich, Purkayastha and van de Geijn,
Concurrency and Computation 19(13), 2007.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from collectives.errors import CollectiveError
from sim.routing import Cut
from sim.topology import Topology
from sim.units import SECOND


class BelowFloorError(CollectiveError):
    """A prediction lies below what is possible: a defect of this program."""


def floor_ps(collective: str, nbytes: int, topology: Topology, root: int = 0) -> int:
    """Return the floor of *collective* on *nbytes* bytes over all ranks, in picoseconds."""
    num_ranks = topology.num_ranks
    if num_ranks == 1 or nbytes == 0:
        return 0
    others = np.arange(1, num_ranks)
    links = topology.routes(np.zeros_like(others), others)
    latency = int(np.where(links >= 0, topology.link_latency[links], 0).sum(axis=1).max())
    bounds = [
        bound
        for cut in topology.routing.cuts()
        if len(cut.group_sizes) > 1
        for bound in _bandwidth_bounds(collective, nbytes, topology, cut, root)
    ]
    return max([latency, *bounds])


def check_floor(time_ps: int, floor: int, what: str) -> None:
    """Raise if *time_ps* lies below *floor*.

    Raises:
        BelowFloorError: it does; no network can be that fast.
    """
    if time_ps < floor:
        raise BelowFloorError(
            f"{what}: {time_ps} ps is predicted, but {floor} ps are needed; please report this"
        )


def _bandwidth_bounds(collective: str, nbytes: int, topology: Topology, cut: Cut, root: int) -> Iterator[int]:
    """Yield the times that a cut needs for what must cross it."""
    sizes = [int(size) for size in cut.group_sizes]
    share = -(-nbytes // topology.num_ranks)
    held = [min(size * share, nbytes) for size in sizes]
    rates_out, rates_in = _rates(topology, cut.links_out), _rates(topology, cut.links_in)
    together = (len(sizes) - 1) * nbytes
    if collective == "all_reduce":
        out = into = [nbytes] * len(sizes)
        together *= 2
    elif collective == "reduce_scatter":
        out, into = [nbytes - part for part in held], _at_least(nbytes, sizes, topology)
    elif collective == "all_gather":
        out, into = _at_least(nbytes, sizes, topology), [nbytes - part for part in held]
    elif collective == "broadcast":
        ends = np.cumsum(sizes)
        first = int(np.searchsorted(ends, root, side="right"))
        out = [nbytes if group == first else 0 for group in range(len(sizes))]
        into = [0 if group == first else nbytes for group in range(len(sizes))]
    else:
        raise ValueError(f"no floor is known for {collective}")
    for needed, rates in ((out, rates_out), (into, rates_in)):
        yield max(amount * SECOND // rate for amount, rate in zip(needed, rates, strict=True))
    unique = np.unique(cut.links_out[cut.links_out >= 0])
    yield together * SECOND // int(topology.link_bandwidth[unique].sum())


def _rates(topology: Topology, links: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> list[int]:
    rates = np.where(links >= 0, topology.link_bandwidth[links], 0).sum(axis=1)
    return [int(rate) for rate in rates]


def _at_least(nbytes: int, sizes: list[int], topology: Topology) -> list[int]:
    """Return what each group's parts hold at least: the last parts may be short or empty."""
    share = -(-nbytes // topology.num_ranks)
    starts = np.cumsum([0, *sizes])
    return [
        min(int(end) * share, nbytes) - min(int(start) * share, nbytes) for start, end in pairwise(starts)
    ]
