"""Ranks of one host, that share its memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sim.errors import TopologyError
from sim.topology.layout import Cache, Links, NetworkLayout
from sim.topology.parameters import Bandwidth, Latency, NumBytes, NumRanks, Speedup
from sim.topology.routing import Cut, Ranks, Wiring, cut_around_ranks, rank_names
from sim.topology.sharing_table import SharingArgument
from sim.units import MOST_SPEEDUP, parse_bandwidth, parse_count, parse_size


def host(
    *,
    num_ranks: NumRanks,
    bandwidth: Bandwidth,
    sharing: SharingArgument = None,
    memory_bandwidth: Bandwidth,
    latency: Latency,
    cache: NumBytes | None = None,
    cache_speedup: Speedup = 1.0,
    cache_copy_speedup: Speedup = 1.0,
    name: str = "host",
) -> NetworkLayout:
    """Return ranks of one host that share its memory; a path has three links, the memory between two.

    A rank's processor writes what the rank sends and reads what it receives; both share it where *sharing*
    says so (``{"one_way": [1.0], "both_ways": [0.5]}``: half of it for each).

    Args:
        num_ranks: number of ranks, at least 1.
        bandwidth: bytes of messages that one rank's processor carries, ``"10GB/s"`` or bytes/s.
        sharing: what flows get of a rank's processor, as for `switch`.
        memory_bandwidth: bytes of messages that all ranks carry together.
        latency: of writing, and of reading.
        cache: bytes of buffers, of all ranks together, up to which messages move faster; None or 0: none do.
        cache_speedup: how many times as fast, at least 1.
        cache_copy_speedup: how many times as fast a rank copies within its own memory.
        name: for people.

    Raises:
        TopologyError: an impossible number of ranks, parts or speedup.
        UnitError: a bandwidth, latency or size that is out of range or cannot be read.
    """
    ranks = parse_count(num_ranks, "num_ranks")
    speedups = {"cache_speedup": cache_speedup, "cache_copy_speedup": cache_copy_speedup}
    for what, speedup in speedups.items():
        if not 1 <= speedup <= MOST_SPEEDUP:
            raise TopologyError(f"{what}: expected 1 to {MOST_SPEEDUP}, got {speedup!r}")
    processors = Links.read(2 * ranks, bandwidth, latency, sharing)
    memory = Links(1, parse_bandwidth(memory_bandwidth, "memory_bandwidth"), 0)
    nbytes = parse_size(0 if cache is None else cache, "cache")
    near = Cache(nbytes, *map(float, speedups.values())) if nbytes else None
    return NetworkLayout(name, ranks, ranks, [processors, memory], HostRouting(ranks), near)


@dataclass(frozen=True)
class HostRouting:
    """Every rank has a link on which it writes and one on which it reads; all messages cross the memory.

    Links: writing of rank r is ``r``, reading ``num_ranks + r``, memory ``2 * num_ranks``.  What a rank
    writes and what it reads go opposite ways, as its processor does both.
    """

    num_ranks: int

    by_channel = False

    def walk(self, source: Ranks, destination: Ranks, channel: Ranks = 0) -> Iterator[Ranks]:
        """Yield the link on which *source* writes, the memory, and that on which *destination* reads."""
        yield source
        yield 2 * self.num_ranks + 0 * source
        yield self.num_ranks + destination

    def link_name(self, link: int) -> str:
        """Return for example ``rank 3 writes``, or ``memory``."""
        if link == 2 * self.num_ranks:
            return "memory"
        return f"rank {link % self.num_ranks} {'reads' if link >= self.num_ranks else 'writes'}"

    def wiring(self) -> Wiring:
        """Return the ranks and the two ends of the memory."""
        ranks = np.arange(self.num_ranks)
        written, read = np.full_like(ranks, self.num_ranks), np.full_like(ranks, self.num_ranks + 1)
        return Wiring(
            (*rank_names(self.num_ranks), "memory, written", "memory, read"),
            np.concatenate([ranks, read, written[:1]]),
            np.concatenate([written, ranks, read[:1]]),
            opposite=np.concatenate([self.num_ranks + ranks, ranks, [-1]]),
        )

    def cuts(self) -> list[Cut]:
        """Return the cut around each rank."""
        return [cut_around_ranks(self.num_ranks)]
