"""Layouts of networks: what a kind of network comes to, in links and a routing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from sim.errors import TopologyError
from sim.topology.link_sharing import LinkSharing
from sim.topology.routing import Routing
from sim.topology.sharing_table import Sharing, SharingArgument
from sim.units import Int64Array, parse_count

Spreading: TypeAlias = Literal["static", "ecmp", "spray"]
"""How messages are spread over equal paths."""


class Cache(NamedTuple):
    """Memory near processors, of use to buffers that fit into it.

    Attributes:
        nbytes: of the buffers of all ranks together, up to which they do.
        speedup: how many times as fast their messages move.
        copy_speedup: how many times as fast a rank copies within its memory.
    """

    nbytes: int
    speedup: float
    copy_speedup: float = 1.0


class NetworkLayout(NamedTuple):
    """What a kind of network comes to; the fields are the first of `Topology`."""

    name: str
    num_ranks: int
    ranks_per_node: int
    link_bandwidth: Int64Array
    link_latency: Int64Array
    routing: Routing
    sharing: LinkSharing | None = None
    cache: Cache | None = None


def layout(
    name: str,
    num_ranks: int,
    ranks_per_node: int,
    kinds: Sequence[tuple[int, int, int]],
    routing: Routing,
    *sharing: SharingArgument,
) -> NetworkLayout:
    """Return the layout of links given as (count, bandwidth, latency), each kind with its sharing."""
    counts = [count for count, _, _ in kinds]
    tables = [Sharing.of(one) for one in sharing]
    shares = LinkSharing.of(zip(counts, tables, strict=True), routing)
    return NetworkLayout(name, num_ranks, ranks_per_node, *_link_arrays(kinds), routing, shares)


def _link_arrays(kinds: Iterable[tuple[int, int, int]]) -> tuple[Int64Array, Int64Array]:
    """Return bandwidths and latencies of links given as (count, bandwidth, latency)."""
    counts, bandwidth, latency = (np.array(column, dtype=np.int64) for column in zip(*kinds, strict=True))
    return np.repeat(bandwidth, counts), np.repeat(latency, counts)


def ecmp_seed(routing: str, known: Sequence[str], seed: int) -> int | None:
    """Return the seed of the hash that *routing* ``ecmp`` asks for, or None for another that is *known*.

    Raises:
        TopologyError: a routing that is not known, or a seed that is not a whole number.
    """
    if routing not in known:
        first = ", ".join(map(repr, known[:-1]))
        raise TopologyError(f"routing: expected {first} or {known[-1]!r}, got {routing!r}")
    return parse_count(seed, "seed", least=0) if routing == "ecmp" else None
