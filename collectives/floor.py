"""What no algorithm can go below on a network: a floor under every prediction.

The floor is the larger of two bounds, both without in-network reduction.

*Latency*: what the root (rank 0 where there is none) has must reach the rank farthest from it, or
for reduce and gather, what that rank has must reach the root.

*Bandwidth*, over cuts of the network into g groups (each rank alone, each node).  Of n bytes a
group must take in and give out a certain part, and all groups together must give out a certain
amount, whatever the algorithm:

    all_reduce      each takes in and gives out n; together 2(g-1)·n, as g-1 merges and
                    g-1 deliveries of every element cross a boundary
    reduce_scatter  each gives out what it does not keep, takes in what it keeps; together (g-1)·n
    all_gather      each takes in what it has not got, gives out what it has; together (g-1)·n
    broadcast       each but the root's takes in n, the root's gives out n; together (g-1)·n
    reduce          the other way round
    gather          each but the root's gives out what it has, the root's takes that in
    scatter         the other way round
    all_to_all      each gives out, for each of its ranks, what is for ranks elsewhere, and takes in as much

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
    others = np.delete(np.arange(num_ranks), root)
    ends = np.full_like(others, root), others
    links = topology.routes(*(ends[::-1] if collective in ("reduce", "gather") else ends))
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
    out, into, together = _crossing(collective, nbytes, sizes, root)
    for needed, links in ((out, cut.links_out), (into, cut.links_in)):
        rates = np.where(links >= 0, topology.link_bandwidth[links], 0).sum(axis=1)
        yield max(amount * SECOND // int(rate) for amount, rate in zip(needed, rates, strict=True))
    unique = np.unique(cut.links_out[cut.links_out >= 0])
    yield together * SECOND // int(topology.link_bandwidth[unique].sum())


def _crossing(collective: str, nbytes: int, sizes: list[int], root: int) -> tuple[list[int], list[int], int]:
    """Return what each group must give out and take in at least, and all must give out together."""
    share = -(-nbytes // sum(sizes))
    edges = [min(int(end) * share, nbytes) for end in np.cumsum([0, *sizes])]
    own = [end - start for start, end in pairwise(edges)]
    rest = [nbytes - part for part in own]
    has_root = [
        start <= root < start + size for start, size in zip(np.cumsum([0, *sizes]), sizes, strict=False)
    ]
    all_of, none = [nbytes] * len(sizes), [0] * len(sizes)

    def root_else(at_root: list[int], elsewhere: list[int]) -> list[int]:
        return [a if here else b for here, a, b in zip(has_root, at_root, elsewhere, strict=True)]

    spread = (len(sizes) - 1) * nbytes
    match collective:
        case "all_reduce":
            return all_of, all_of, 2 * spread
        case "reduce_scatter":
            return rest, own, spread
        case "all_gather":
            return own, rest, spread
        case "broadcast":
            return root_else(all_of, none), root_else(none, all_of), spread
        case "reduce":
            return root_else(none, all_of), root_else(all_of, none), spread
        case "scatter":
            return root_else(rest, none), root_else(none, own), sum(root_else(rest, none))
        case "gather":
            return root_else(none, own), root_else(rest, none), sum(root_else(rest, none))
        case "all_to_all":
            exchanged = [size * part for size, part in zip(sizes, rest, strict=True)]
            taken = [(sum(sizes) - size) * part for size, part in zip(sizes, own, strict=True)]
            return exchanged, taken, sum(exchanged)
    raise ValueError(f"no floor is known for {collective}")
