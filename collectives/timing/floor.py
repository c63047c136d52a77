"""Floor under every prediction: the time that no algorithm can go below on a network.

The floor is the larger of two bounds.

*Latency*: what the root (rank 0 where there is none) has must reach the rank farthest from it, or
for reduce and gather, what that rank has must reach the root; on the quickest path that there is.

*Bandwidth*, over cuts of the network into g groups (each rank alone, each node).  Of n bytes a
group must take in and give out a certain part, and, where switches neither reduce nor multicast,
all groups together must give out a certain amount, whatever the algorithm:

    all_reduce      each takes in and gives out n; together 2(g-1)·n, as g-1 merges and
                    g-1 deliveries of every element cross a boundary
    reduce_scatter  each gives out what it does not keep, takes in what it keeps; together (g-1)·n
    all_gather      each takes in what it has not got, gives out what it has; together (g-1)·n
    broadcast       each but the root's takes in n, the root's gives out n; together (g-1)·n
    reduce          the other way round
    gather          each but the root's gives out what it has, the root's takes that in
    scatter         the other way round
    all_to_all      each gives out, for each of its ranks, what is for ranks elsewhere, and takes in as much

Part r of a buffer is rank r's, wherever that is.

Sources: Patarasuk and Yuan, JPDC 69(2), 2009; Chan, Heimlich, Purkayastha and van de Geijn,
Concurrency and Computation 19(13), 2007.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from collectives.errors import CollectiveError, NotSupportedError
from sim.topology import Topology
from sim.topology.routing import Cut
from sim.topology.routing.paths import ShortestPaths
from sim.units import MAX_PS, SECOND, Int64Array


class BelowFloorError(CollectiveError):
    """A prediction lies below what is possible: a defect of this program."""


def floor_ps(
    collective: str,
    nbytes: int,
    topology: Topology,
    root: int = 0,
    hosts: Sequence[int] | Int64Array | None = None,
    *,
    in_network: bool = False,
) -> int:
    """Return the floor of *collective* on *nbytes* bytes, in picoseconds.

    Args:
        collective: its name.
        nbytes: size of the buffer, as nccl-tests counts it.
        topology: the network.
        root: the rank of the group that is the root.
        hosts: the place of each rank of the group in the topology, distinct, in any order; by
            default rank r is at place r.
        in_network: whether switches may reduce and multicast, so that only what each group must
            take in and give out counts.
    """
    places = np.arange(topology.num_ranks) if hosts is None else np.asarray(hosts, dtype=np.int64)
    if len(places) == 1 or nbytes == 0:
        return 0
    paths = ShortestPaths.of(topology.routing.wiring(), topology.link_latency)
    if collective in ("reduce", "gather"):
        paths = paths.reversed()
    latency = int(paths.distances(int(places[root]))[places].max())
    return max(latency, wire_ps(collective, nbytes, topology, places, root, in_network=in_network))


def wire_ps(
    collective: str,
    nbytes: int,
    topology: Topology,
    hosts: Sequence[int] | Int64Array,
    root: int = 0,
    *,
    in_network: bool = False,
) -> int:
    """Return the part of the floor that is bandwidth; of what moves no buffer, such as a barrier, nothing.

    The arguments are those of `floor_ps`; every rank has its place.
    """
    places = np.asarray(hosts, dtype=np.int64)
    if len(places) == 1 or nbytes == 0 or collective == "barrier":
        return 0
    bounds = [
        bound
        for cut in topology.routing.cuts()
        for bound in _bandwidth_bounds(collective, nbytes, topology, cut, places, root, in_network)
    ]
    return max(bounds, default=0)


def check_floor(time_ps: int, floor: int, what: str) -> None:
    """Raise if *time_ps* lies below *floor*.

    Raises:
        BelowFloorError: it does; no network can be that fast.
        NotSupportedError: it does, as it is longer than what is reckoned exactly.
    """
    if time_ps < floor:
        if floor >= MAX_PS:
            raise NotSupportedError(f"{what}: {TOO_LONG}")
        raise BelowFloorError(
            f"{what}: {time_ps} ps is predicted, but {floor} ps are needed; please report this"
        )


TOO_LONG = (
    f"it would take more than {MAX_PS} ps (53 days), beyond which times are not exact; expected a faster "
    "network, shorter latencies or fewer bytes"
)


class _Group(NamedTuple):
    """What a bound depends on: how many ranks a group has, the bytes of their parts, its rates."""

    num_ranks: int
    own: int
    has_root: bool
    rate_out: int
    rate_in: int


def _bandwidth_bounds(
    collective: str,
    nbytes: int,
    topology: Topology,
    cut: Cut,
    places: Int64Array,
    root: int,
    in_network: bool,
) -> Iterator[int]:
    """Yield the times that a cut needs for what must cross it."""
    group_of = cut.group_of[places]
    inside = group_of >= 0
    present, group = np.unique(group_of[inside], return_inverse=True)
    num_groups = len(present) + (not inside.all())
    if num_groups < 2:
        return

    num_ranks = len(places)
    edges = np.minimum(np.arange(num_ranks + 1) * -(-nbytes // num_ranks), nbytes)
    own = np.zeros(len(present), dtype=np.int64)
    np.add.at(own, group, np.diff(edges)[inside])

    links_out, links_in = cut.links_out[present], cut.links_in[present]
    columns = (
        np.bincount(group),
        own,
        present == group_of[root],
        *(
            np.where(side >= 0, topology.link_bandwidth[side], 0).sum(axis=1)
            for side in (links_out, links_in)
        ),
    )

    kinds = Counter(zip(*(column.tolist() for column in columns), strict=True))
    together = 0
    for kind, count in ((_Group(*kind), count) for kind, count in kinds.items()):
        out, into = _crossing(collective, nbytes, num_ranks, kind)
        yield out * SECOND // kind.rate_out
        yield into * SECOND // kind.rate_in
        together += count * out

    if not in_network and inside.all():
        together = max(together, _DELIVERIES.get(collective, 0) * (num_groups - 1) * nbytes)

    yield together * SECOND // int(topology.link_bandwidth[np.unique(links_out[links_out >= 0])].sum())


_DELIVERIES = {"all_reduce": 2, "reduce_scatter": 1, "all_gather": 1, "broadcast": 1, "reduce": 1}
"""How often all n bytes must leave all groups but one, together."""


def _crossing(collective: str, nbytes: int, num_ranks: int, group: _Group) -> tuple[int, int]:
    """Return what *group* must give out and take in at least."""
    own, rest = group.own, nbytes - group.own
    match collective:
        case "all_reduce":
            return nbytes, nbytes
        case "reduce_scatter":
            return rest, own
        case "all_gather":
            return own, rest
        case "broadcast":
            return (nbytes, 0) if group.has_root else (0, nbytes)
        case "reduce":
            return (0, nbytes) if group.has_root else (nbytes, 0)
        case "scatter":
            return (rest, 0) if group.has_root else (0, own)
        case "gather":
            return (0, rest) if group.has_root else (own, 0)
        case "all_to_all":
            return group.num_ranks * rest, (num_ranks - group.num_ranks) * own
    raise ValueError(f"no floor is known for {collective}")
