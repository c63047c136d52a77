"""Incast, measured: what flows that end in one port of a switch get of it where they queue for it together.

A switch of 16 hosts is built with one queue before each port (`COMMON`).  Patterns of plain sockets, and
collectives over Gloo, are predicted with the sharing table of the fabric ``ethernet-tcp`` and measured.  The
table is fitted to rows that calibrate; others judge it.  Rows of other queues or hosts than it assumes show
what it depends on, and do neither.

    exchange    hosts 0 to k send to each other at once: k flows leave each port, and k end in it
    ring        each of 16 sends to the next one
    many to one k hosts send to one, which sends nothing
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Literal, TypeAlias

from benchmarks.lab.shaped.built import built
from benchmarks.lab.shaped.hosts import Hosts, started
from benchmarks.lab.shaped.plan import LARGEST, plan
from benchmarks.lab.shaped.shaping import COMMON, FRAME, PAYLOAD, Shaping
from benchmarks.lab.shaped.sockets import Flow, Times, counted_timeouts, time_flows
from benchmarks.lab.shaped.timing import Call, fitting, time_calls
from collectives.timing import simulate
from sim import Topology
from sim.topology.fabric import FABRICS
from testbed.calibration.confidence import Compared
from testbed.output.table import Advance, spell_size

FABRIC = "ethernet-tcp"
REPETITIONS = 5
RATE_MBPS = 25
KIB, MIB = 1 << 10, 1 << 20
DEEP = replace(COMMON, port_queue=512 * KIB)
"""Twice the queue; at 50 Mbit/s, so that it does not hold frames for longer than a time-out."""
FRAME_BY_FRAME = replace(COMMON, port_queue=32 * FRAME, pieces=1)
"""A fifth of the queue of `COMMON`, and hosts that send no trains."""

Role: TypeAlias = Literal["calibrates", "judges", "elsewhere"]

PATTERNS: dict[str, Callable[[int], list[Flow]]] = {
    "exchange": lambda flows: [(a, b) for a in range(flows + 1) for b in range(flows + 1) if a != b],
    "ring": lambda _: [(host, (host + 1) % LARGEST) for host in range(LARGEST)],
    "many to one": lambda flows: [(host, 0) for host in range(1, flows + 1)],
}


@dataclass(frozen=True)
class Case:
    """What is predicted and measured.

    Attributes:
        what: one of `PATTERNS`, or a collective and its algorithm.
        flows: that end in a port at once; of algorithms other than ``direct`` one.
        nbytes: that end in a port altogether; of a collective the size of its buffer.
        rate_mbps: of each link, Mbit/s.
        role: whether the fabric's table is fitted to it, is judged by it, or assumes something else.
        shaping: of the network.
    """

    what: str
    flows: int
    nbytes: int
    rate_mbps: int = RATE_MBPS
    role: Role = "judges"
    shaping: Shaping = COMMON

    @property
    def name(self) -> str:
        """What it is, in words, and how it is not as most are."""
        words = [self.what]
        if self.rate_mbps != RATE_MBPS:
            words.append(f"{self.rate_mbps} Mbit/s")
        if self.shaping.port_queue != COMMON.port_queue:
            words.append(f"queue {spell_size(self.shaping.port_queue or 0)}")
        if self.shaping.pieces == 1:
            words.append("frame by frame")
        return ", ".join(words)

    @property
    def rate(self) -> float:
        """Bytes of payload per second of each link."""
        return self.rate_mbps * 1e6 / 8 * PAYLOAD / FRAME

    def predicted(self, fabric: str | None) -> float:
        """Return the seconds that it takes where ports are those of *fabric*; None: links alone."""
        if self.what in PATTERNS:
            part = 1.0 if fabric is None else FABRICS[fabric].part(self.flows, both_ways=False)
            return self.nbytes / self.rate / part
        topology = Topology.switch(num_ranks=LARGEST, bandwidth=self.rate, latency=0, fabric=fabric)
        collective, algorithm = self.what.split()
        nbytes = fitting(self.nbytes, collective, LARGEST)
        return simulate(
            algorithm, nbytes=nbytes, topology=topology, collective=collective, transport_model="gloo"
        ).seconds

    def measure(self, hosts: Hosts) -> Times:
        """Return how long it takes.

        Raises:
            HostError: a host failed.
        """
        if self.what in PATTERNS:
            flows = PATTERNS[self.what](self.flows)
            return time_flows(hosts, flows, self.nbytes // self.flows, repetitions=REPETITIONS)
        collective, algorithm = self.what.split()
        call = Call(collective, algorithm, fitting(self.nbytes, collective, LARGEST))
        before = counted_timeouts(hosts)
        (seconds,) = time_calls(hosts, [call], repetitions=REPETITIONS)
        return Times(tuple(seconds), (counted_timeouts(hosts) - before) / (REPETITIONS + 1))


def cases() -> Iterator[Case]:
    """Yield what is measured, rate by rate."""
    for flows in (1, 3, 7, 15):
        yield Case("exchange", flows, 4 * MIB, role="calibrates")
    for flows in (2, 5, 10):
        yield Case("exchange", flows, 4 * MIB)
    for flows in (3, 7, 15):
        yield Case("exchange", flows, MIB)
    yield Case("ring", 1, 4 * MIB)
    for flows in (7, 15):
        yield Case("many to one", flows, 4 * MIB)
    for nbytes in (MIB, 4 * MIB):
        yield Case("all_reduce direct", LARGEST - 1, nbytes)
        yield Case("all_reduce ring", 1, nbytes)
        yield Case("all_reduce halving_doubling", 1, nbytes)
    yield Case("all_to_all direct", LARGEST - 1, 4 * MIB)
    for flows in (3, 7, 15):
        yield Case("exchange", flows, 4 * MIB, rate_mbps=50)
    yield Case("exchange", 15, 4 * MIB, 50, role="elsewhere", shaping=DEEP)
    yield Case("exchange", 15, 4 * MIB, role="elsewhere", shaping=FRAME_BY_FRAME)
    for nbytes in (64 * KIB, 256 * KIB):
        yield Case("many to one", 15, 15 * nbytes, 200, role="elsewhere", shaping=FRAME_BY_FRAME)


@dataclass(frozen=True)
class IncastRow(Compared):
    """What came of one case: foretold with the fabric, and the median of repetitions, in seconds.

    Attributes:
        case: what was measured.
        links_seconds: foretold of links alone.
        times: of the repetitions.
    """

    case: Case
    links_seconds: float
    times: Times

    @property
    def part(self) -> float:
        """What flows got, measured: the part of what links alone give."""
        return self.links_seconds / self.measured

    @property
    def links_error(self) -> float:
        """Predicted of links alone over measured, less one."""
        return self.links_seconds / self.measured - 1

    def as_json(self) -> dict[str, Any]:
        """Return the row as JSON types."""
        return {
            "case": self.case.name,
            "flows": self.case.flows,
            "nbytes": self.case.nbytes,
            "rate_mbps": self.case.rate_mbps,
            "role": self.case.role,
            "port_queue": self.case.shaping.port_queue,
            "train_frames": self.case.shaping.pieces,
            "links_seconds": self.links_seconds,
            "predicted_seconds": self.predicted,
            "measured_seconds": self.measured,
            "part": self.part,
            "error": self.error,
            "links_error": self.links_error,
            "seconds": list(self.times.seconds),
            "timeouts": self.times.timeouts,
        }


def measure_incast(chosen: list[Case], advance: Advance) -> list[IncastRow]:
    """Return what comes of *chosen*; all is foretold before any of it is measured.

    Raises:
        UsageError: this process may not build networks.
        HostError: a host failed.
    """
    foretold = [(case.predicted(None), case.predicted(FABRIC)) for case in chosen]
    rows = []
    for rate, shaping in dict.fromkeys((case.rate_mbps, case.shaping) for case in chosen):
        topology = Topology.switch(num_ranks=LARGEST, bandwidth=f"{rate}Mbps", latency=0)
        with built(plan(topology), shaping) as network, started(network) as hosts:
            for case, (alone, predicted) in zip(chosen, foretold, strict=True):
                if (case.rate_mbps, case.shaping) == (rate, shaping):
                    advance(f"{case.name}, {case.flows} to a port")
                    times = case.measure(hosts)
                    rows.append(IncastRow(predicted, median(times.seconds), case, alone, times))
    return rows
