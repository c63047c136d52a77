"""Cases for the benchmark of the engines: what runs, how long it may take, what other simulators took.

Peers were measured by us, on one machine with 2 cores, on the same work: LogGOPSim 76451de, ASTRA-sim
518bd51 (its analytical backends without and with contention), SimGrid 3.32 (S4U, model CM02 with
``TCP-gamma:0`` and ``crosstraffic:0``).  Wall seconds, the best of several runs; what LogGOPSim's generator
of input takes is not in them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from anchors import ANCHORS, GIB, MIB, Anchor, nodes, switch, two_rings_on_a_switch

from collectives import Job, simulate, simulate_jobs
from sim import Jitter, Topology

JITTER = {"conditions": [Jitter("1us")]}
NOT_EVEN = 7777
"""Bytes on top of a size that divides."""


@dataclass(frozen=True)
class Peers:
    """Wall seconds of other simulators; None: not run, or not able to."""

    loggopsim: float | None = None
    astra: float | None = None
    astra_contention: float | None = None
    simgrid: float | None = None


@dataclass(frozen=True)
class Case:
    """Something to be timed.

    Attributes:
        engine: that runs it, or ``routes``.
        name: what it is, for people.
        run: does it, and returns the simulated picoseconds, or None where there are none.
        form: returns them by the closed form; None: there is none.
        peers: what others took.
    """

    engine: Literal["makespan", "events", "routes"]
    name: str
    run: Callable[[], int | None]
    form: Callable[[], int] | None = None
    peers: Peers = Peers()

    @property
    def title(self) -> str:
        """A name that no other case has."""
        return f"{self.engine}: {self.name}"


def _anchored(
    engine: Literal["makespan", "events"],
    name: str,
    n: int,
    peers: Peers = Peers(),
    *,
    nbytes: int | None = None,
    note: str = "",
    **options: Any,
) -> Case:
    anchor: Anchor = ANCHORS[name]
    size = nbytes or anchor.nbytes(n)

    def run() -> int:
        given = {**anchor.options, **options}
        return simulate(
            anchor.algorithm, nbytes=size, topology=anchor.topology(n), engine=engine, **given
        ).time_ps

    form = None if options else lambda: anchor.time_ps(n, size)
    return Case(engine, f"{name}, N = {n}{note}", run, form, peers)


def _two_rings(n: int, *, note: str = "", **options: Any) -> Case:
    def run() -> int:
        runs = simulate_jobs([Job("ring", GIB)] * 2, topology=switch(n), **options)
        return max(run.time_ps for run in runs)

    form = None if options else lambda: two_rings_on_a_switch(n, GIB)
    return Case("events", f"two rings, N = {n}{note}", run, form)


def _double_tree(n: int) -> Case:
    def run() -> int:
        algorithm = "double_binary_tree:segments=16"
        return simulate(algorithm, nbytes=64 * MIB, topology=switch(n), engine="events").time_ps

    return Case("events", f"double_binary_tree, 16 segments, N = {n}", run)


def _channels(n: int) -> Case:
    def run() -> int:
        topology, nbytes = nodes(n, nics_per_node=8), GIB + NOT_EVEN
        return simulate(
            "ring:channels=8", nbytes=nbytes, collective="all_gather", topology=topology, engine="makespan"
        ).time_ps

    return Case("makespan", f"all-gather in 8 channels, N = {n}, does not divide", run)


def _fat_tree(algorithm: str, n: int) -> Case:
    """Return messages that go several ways through a fat tree, and so meet without symmetry."""

    def run() -> int:
        topology = Topology.fat_tree(k=8, num_ranks=n, bandwidth="100Gbps", latency="1us")
        return simulate(algorithm, nbytes=64 * MIB, topology=topology, engine="events").time_ps

    return Case("events", f"fat tree, {algorithm}, N = {n}", run)


def _routes(name: str, build: Callable[[], Topology]) -> Case:
    def run() -> None:
        """Build the network, and route a shift by one and a million random pairs."""
        topology = build()
        ranks = np.arange(topology.num_ranks)
        topology.routes(ranks, np.roll(ranks, 1))
        source = np.random.default_rng(0).integers(0, topology.num_ranks, 10**6)
        topology.routes(source, (source + 1 + source[::-1] % (topology.num_ranks - 1)) % topology.num_ranks)

    return Case("routes", name, run)


SW_256 = Peers(0.06, 0.15, 0.22, 0.30)
SW_1024 = Peers(1.38, 3.0, 4.8, 7.0)
SW_4096 = Peers(50, 96, 113, 238)
HIER_1024 = Peers(astra=0.59, simgrid=1.19)
HIER_4096 = Peers(astra=10.8, simgrid=34.5)

CASES = [
    _anchored("makespan", "sw", 256, SW_256),
    _anchored("makespan", "sw", 1024, SW_1024),
    _anchored("makespan", "sw", 4096, SW_4096),
    _anchored("makespan", "sw", 16_384),
    _anchored("makespan", "sw", 16_384, nbytes=GIB + NOT_EVEN, note=", does not divide"),
    _anchored("makespan", "sw", 16_384, note=", jitter", **JITTER),
    _anchored("makespan", "H-hier", 1024, HIER_1024),
    _anchored("makespan", "H-hier", 4096, HIER_4096),
    _anchored("makespan", "stride", 256, Peers(simgrid=0.33)),
    _anchored("makespan", "a2a", 256, Peers(simgrid=2.0)),
    _anchored("makespan", "tree rhd", 1024, Peers(simgrid=0.61)),
    _channels(256),
    _anchored("events", "sw", 256, SW_256),
    _anchored("events", "sw", 1024, SW_1024),
    _anchored("events", "sw", 4096, SW_4096),
    _anchored("events", "sw", 1024, nbytes=GIB + NOT_EVEN, note=", does not divide"),
    _anchored("events", "sw", 256, note=", jitter", **JITTER),
    _anchored("events", "H-flat", 256),
    _anchored("events", "H-hier", 1024, HIER_1024),
    _anchored("events", "H-hier", 4096, HIER_4096),
    _anchored("events", "stride", 256, Peers(simgrid=0.33)),
    _anchored("events", "stride", 256, note=", jitter", **JITTER),
    _two_rings(256),
    _two_rings(256, note=", jitter", **JITTER),
    _anchored("events", "a2a", 256, Peers(simgrid=2.0)),
    _anchored("events", "a2a", 1024),
    _anchored("events", "tree a2a", 256),
    _anchored("events", "tree rhd", 1024, Peers(simgrid=0.61), nbytes=64 * MIB),
    _double_tree(1024),
    _fat_tree("ring", 128),
    _fat_tree("double_binary_tree:segments=4", 128),
    _routes("torus 16 × 16 × 16", lambda: Topology.torus(shape=(16, 16, 16), bandwidth="1GB/s", latency=0)),
    _routes(
        "fat tree, 4096 hosts",
        lambda: Topology.fat_tree(k=26, num_ranks=4096, bandwidth="100Gbps", latency="1us"),
    ),
]


OVER_N = {
    "makespan": [_anchored("makespan", "sw", n) for n in (64, 256, 1024, 4096, 16_384)],
    "makespan, does not divide": [
        _anchored("makespan", "sw", n, nbytes=GIB + NOT_EVEN, note=", does not divide")
        for n in (64, 256, 1024, 4096, 16_384)
    ],
    "events": [_anchored("events", "sw", n) for n in (64, 256, 1024, 4096, 16_384)],
}
"""Rings of 1 GiB on a switch, for the cost over the number of ranks."""

OVER_SIZE_N = 1024
SIZES = {
    "divides": [2**k for k in range(10, 31, 2)],
    "does not divide": sorted(
        int(size) for size in 2 ** np.random.default_rng(0).uniform(10, 30, 20) // 2 * 2 + 1
    ),
}
"""Of rings on a switch of `OVER_SIZE_N` ranks, for the cost over the size; odd ones are drawn at random."""


def over_size(engine: Literal["makespan", "events"], nbytes: int) -> Case:
    """Return a ring of *nbytes*."""
    return _anchored(engine, "sw", OVER_SIZE_N, nbytes=nbytes, note=f", {nbytes} bytes")
