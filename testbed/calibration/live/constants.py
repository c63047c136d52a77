"""Constants of a network as a vector, and what the simulator says of a pattern with them.

Times are nearly linear in the constants if those of the links are written as seconds a byte, so that is
what the vector holds.  `predicted` runs the very simulation that later uses what is found: the transport
model of Gloo or of shared memory, Gloo's own algorithms for ``native``, and sharing tables.

A constant has a name: the class of links or whose software, what it is, and of an entry of a sharing table
the number of flows (``between_nodes one_way 2``).  The name says where a fit begins, below which no value
comes, and which patterns the constant concerns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from collectives.timing import (
    Assumptions,
    Job,
    Software,
    default_transport_model,
    simulate,
    simulate_jobs,
)
from sim import Topology
from sim.units import MOST_SPEEDUP
from testbed.calibration.live.calibration import LinkClass
from testbed.calibration.live.networks import LinkFields, network_fields
from testbed.calibration.live.plan import ITEM_SIZE, Pattern, Wiring

_PS = 1e12
CACHED = ("inside_node cached_way 1", "inside_node copied_way 1")
"""Names of what a byte of one flow, and one that is copied, takes where buffers fit into caches."""
MOST_FLOWS = 4
"""Entries of a sharing table that are found; the last goes on."""
_FASTER = 1.5
"""Times as fast that memory begins to be taken for where buffers fit into caches."""
_FASTEST = 10.0
"""Times the rate of the largest rows that a link of unknown rate is taken to reach at most."""
_TIME_STEP = 5e-6
_RELATIVE_STEP = 0.02

T = TypeVar("T")


@dataclass(frozen=True)
class Costs:
    """Of software: seconds of a message on either side, until its arrival is known, and of a reduced byte.

    Where it is looked for: of a call, and of a byte that is copied around a program.
    """

    overhead: float
    arrival: float
    reduced: float
    call: float = 0.0
    copied: float = 0.0


@dataclass(frozen=True)
class Links:
    """Of a class of links: seconds of a path, and of a byte by numbers of flows, one way and both ways.

    Of trunks the latency is that by which a path through one is longer than others.
    """

    latency: float
    one_way: tuple[float, ...]
    both_ways: tuple[float, ...]


@dataclass(frozen=True)
class Constants:
    """All that is found: of each class of links, of our programs and of the vendor's collectives, if any.

    Where a size of caches is assumed: seconds that a byte of one flow, and one that is copied, takes where
    buffers fit into them.
    """

    links: Mapping[LinkClass, Links]
    programs: Costs
    native: Costs | None
    cached: tuple[float, float] | None = None

    @property
    def cache_speedups(self) -> tuple[float, float]:
        """How many times as fast messages and copies are where buffers fit into caches."""
        if self.cached is None:
            return 1.0, 1.0
        beyond = self.links["inside_node"].one_way[0], self.programs.copied
        messages, copies = (
            min(MOST_SPEEDUP, max(1.0, far / max(near, far / MOST_SPEEDUP))) if far else 1.0
            for far, near in zip(beyond, self.cached, strict=True)
        )
        return messages, copies


def network(wiring: Wiring, constants: Constants, rates: Mapping[LinkClass, float] | None = None) -> Topology:
    """Return the network of this *wiring* with *constants*.

    Args:
        wiring: who shares what.
        constants: what was found.
        rates: bytes/s of links whose rates are known; others have what was found: the most that any number
            of flows one way was found to get together.
    """
    links: dict[LinkClass, LinkFields] = {}
    for kind, own in constants.links.items():
        rate = max(1, round((rates or {}).get(kind, 1 / min(own.one_way))))
        one_way, both_ways = (
            [min(1.0, 1 / (each * rate)) for each in way] for way in (own.one_way, own.both_ways)
        )
        links[kind] = LinkFields(rate, own.latency, one_way, both_ways)
    fields = network_fields(wiring, links, wiring.cache, *constants.cache_speedups)
    if wiring.kind == "nodes":
        fields["num_nodes"] = -(-wiring.num_ranks // wiring.ranks_per_node)
    made: Topology = getattr(Topology, wiring.kind)(num_ranks=wiring.num_ranks, name="calibrated", **fields)
    return made


def _bandwidth(seconds: float) -> int | None:
    """Return bytes/s at which a byte takes *seconds*, None for no time."""
    return None if seconds <= 0 else max(1, round(1 / seconds))


def predicted(pattern: Pattern, topology: Topology, constants: Constants) -> float:
    """Return the seconds that the simulator says *pattern* takes."""
    costs = constants.native if pattern.is_native else constants.programs
    assert costs is not None
    transport = default_transport_model(topology)
    software = Software(
        transport_model=transport,
        overhead=f"{round(costs.overhead * _PS)}ps",
        arrival_overhead=f"{round(costs.arrival * _PS)}ps",
        reduction_bandwidth=_bandwidth(costs.reduced),
        call_overhead=f"{round(costs.call * _PS)}ps",
        copy_bandwidth=_bandwidth(costs.copied),
    )
    jobs = [
        Job(
            pattern.algorithm,
            pattern.nbytes,
            collective=pattern.collective,
            itemsize=ITEM_SIZE,
            placement=members,
            software=software,
        )
        for members in pattern.groups
    ]
    if len(jobs) == 1:
        (job,) = jobs
        return simulate(
            job.algorithm,
            nbytes=job.nbytes,
            topology=topology,
            collective=job.collective,
            itemsize=ITEM_SIZE,
            placement=job.placement,
            assumptions=Assumptions(software),
        ).seconds
    return max(run.seconds for run in simulate_jobs(jobs, topology=topology))


def flows_of(wiring: Wiring) -> int:
    """Return how many entries of sharing tables are found."""
    return min(MOST_FLOWS, max(1, wiring.num_ranks - 1))


def names_of(wiring: Wiring, flows: int) -> list[str]:
    """Return the names of all constants, in the order of a vector; memory has only a rate."""
    names = []
    for kind in wiring.classes:
        if kind == "memory":
            names += ["memory one_way 1", *(CACHED if wiring.cache else ())]
            continue
        ways = (f"{way} {k}" for way in ("one_way", "both_ways") for k in range(1, flows + 1))
        names += [f"{kind} {what}" for what in ("latency", *ways)]
    return [*names, *(f"{by} {what}" for by in software_of(wiring) for what in _costs_of(wiring))]


def _costs_of(wiring: Wiring) -> tuple[str, ...]:
    """Return the names of costs of software; of calls, where the network does not hide them."""
    names = tuple(Costs.__dataclass_fields__)
    return names if wiring.in_memory else names[:3]


def software_of(wiring: Wiring) -> tuple[str, ...]:
    """Return whose costs are found: of our programs and, where there are any, of the vendor's collectives."""
    return ("programs",) if wiring.in_memory else ("programs", "native")


def constants_of(values: Sequence[float], wiring: Wiring, flows: int) -> Constants:
    """Return what a vector in the order of `names_of` says."""
    found = dict(zip(names_of(wiring, flows), values, strict=True))
    links = {kind: Links(found.get(f"{kind} latency", 0.0), *ways_of(found, kind)) for kind in wiring.classes}
    costs = {by: Costs(*(found[f"{by} {what}"] for what in _costs_of(wiring))) for by in software_of(wiring)}
    cached = (found[CACHED[0]], found[CACHED[1]]) if wiring.cache else None
    return Constants(links, costs["programs"], costs.get("native"), cached)


def ways_of(found: Mapping[str, T], kind: LinkClass) -> tuple[tuple[T, ...], tuple[T, ...]]:
    """Return what was *found* of a byte by numbers of flows, one way and both ways; memory has only one."""
    one_way, both_ways = (
        tuple(found[name] for k in range(1, MOST_FLOWS + 1) if (name := f"{kind} {way} {k}") in found)
        for way in ("one_way", "both_ways")
    )
    return one_way, both_ways or one_way


def first_value(name: str, byte_seconds: float) -> float:
    """Return with what a constant begins."""
    if name in CACHED:
        return byte_seconds / _FASTER
    if _is_of_bytes(name) or "copied" in name:
        return byte_seconds
    return 0.0 if "reduced" in name else 2e-5


def least_value(name: str, rates: Mapping[Any, float], byte_seconds: float) -> float:
    """Return below which a constant cannot be: a time below 0, a link above its rate."""
    if not _is_of_bytes(name):
        return 0.0
    kind = name.partition(" ")[0]
    return 1 / rates[kind] if kind in rates else byte_seconds / _FASTEST


def step_of(name: str, value: float, byte_seconds: float) -> float:
    """Return by how much to move a constant to see what follows."""
    if _is_of_bytes(name):
        return value * _RELATIVE_STEP
    return byte_seconds * _RELATIVE_STEP if _is_of_copies(name) else _TIME_STEP


def concerns(name: str, pattern: Pattern) -> bool:
    """Return whether the time of *pattern* may depend on the constant of that name."""
    by, _, what = name.partition(" ")
    if by not in ("programs", "native"):
        return True
    reduces = what != "reduced" or pattern.collective == "all_reduce"
    return reduces and pattern.is_native == (by == "native")


def neighbours(name: str) -> tuple[str, ...]:
    """Return the entries that follow one of a sharing table: of a flow more, and of the other directions."""
    if not _is_of_bytes(name):
        return ()
    kind, way, flows = name.split()
    more = f"{kind} {way} {int(flows) + 1}"
    return (more, f"{kind} both_ways {flows}") if way == "one_way" else (more,)


def _is_of_bytes(name: str) -> bool:
    return "_way" in name


def _is_of_copies(name: str) -> bool:
    return name.endswith(("reduced", "copied"))
