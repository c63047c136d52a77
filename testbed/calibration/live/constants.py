"""Constants of a network as a vector, and what the simulator says of a pattern with them.

Times are nearly linear in the constants if those of the links are written as seconds a byte, so that is
what the vector holds.  `predicted` runs the very simulation that later uses what is found: the transport
model of Gloo or of shared memory, Gloo's own algorithms for ``native``, and sharing tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
from testbed.calibration.live.plan import Wiring
from testbed.calibration.live.quantities import LinkClass
from testbed.calibration.live.rows import ITEM_SIZE, Pattern

_PS = 1e12
CACHED = ("inside_node cached_way 1", "inside_node copied_way 1")
"""Names of what a byte of one flow, and one that is copied, takes where buffers fit into caches."""
MOST_FLOWS = 4
"""Entries of a sharing table that are found; the last goes on."""


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


def classes_of(wiring: Wiring) -> tuple[LinkClass, ...]:
    """Return the classes of links on a network of this *wiring*, those at the ranks first."""
    if wiring.kind == "host":
        return "inside_node", "memory"
    if wiring.kind == "nodes":
        return "inside_node", "between_nodes"
    if wiring.kind == "leaf_spine":
        return "between_nodes", "trunk"
    return ("inside_node",) if wiring.ranks_per_node > 1 else ("between_nodes",)


def rate_of(links: Links) -> float:
    """Return the most bytes/s that any number of flows one way was found to get together."""
    return 1 / min(links.one_way)


def network(wiring: Wiring, constants: Constants, rates: Mapping[LinkClass, float] | None = None) -> Topology:
    """Return the network of this *wiring* with *constants*.

    Args:
        wiring: who shares what.
        constants: what was found.
        rates: bytes/s of links whose rates are known; others have what was found.
    """
    kinds = classes_of(wiring)
    known = rates or {}
    near, far = constants.links[kinds[0]], constants.links[kinds[-1]]
    rate = [known.get(kind, rate_of(constants.links[kind])) for kind in kinds]
    whole = [max(1, round(own)) for own in rate]
    tables = [_table(constants.links[kind], own) for kind, own in zip(kinds, whole, strict=True)]
    half = f"{round(near.latency * _PS / 2)}ps"
    if wiring.kind == "switch":
        return Topology.switch(
            num_ranks=wiring.num_ranks, bandwidth=whole[0], latency=half, sharing=tables[0], name="calibrated"
        )
    if wiring.kind == "host":
        return Topology.host(
            num_ranks=wiring.num_ranks,
            bandwidth=whole[0],
            memory_bandwidth=whole[1],
            latency=half,
            sharing=tables[0],
            cache=wiring.cache,
            cache_speedup=constants.cache_speedups[0],
            cache_copy_speedup=constants.cache_speedups[1],
            name="calibrated",
        )
    if wiring.kind == "nodes":
        return Topology.nodes(
            num_nodes=-(-wiring.num_ranks // wiring.ranks_per_node),
            ranks_per_node=wiring.ranks_per_node,
            num_ranks=wiring.num_ranks,
            intra_bandwidth=whole[0],
            intra_latency=half,
            intra_sharing=tables[0],
            nics_per_node=1,
            nic_bandwidth=whole[1],
            nic_latency=f"{round(far.latency * _PS / 2)}ps",
            nic_sharing=tables[1],
            name="calibrated",
        )
    assert wiring.ranks_per_rack is not None
    return Topology.leaf_spine(
        num_ranks=wiring.num_ranks,
        hosts_per_leaf=wiring.ranks_per_rack,
        bandwidth=whole[0],
        latency=half,
        sharing=tables[0],
        uplink_bandwidth=whole[1],
        uplink_latency=f"{round(far.latency * _PS / 2)}ps",
        uplink_sharing=tables[1],
        name="calibrated",
    )


def _table(links: Links, rate: int) -> dict[str, list[float]]:
    """Return the sharing table of *links* that carry *rate* bytes/s."""
    parts = {"one_way": links.one_way, "both_ways": links.both_ways}
    return {name: [min(1.0, 1 / (own * rate)) for own in seconds] for name, seconds in parts.items()}


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
    for kind in classes_of(wiring):
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
    rest = list(values)

    def take(count: int) -> tuple[float, ...]:
        taken = tuple(rest[:count])
        del rest[:count]
        return taken

    links: dict[LinkClass, Links] = {}
    cached: tuple[float, float] | None = None
    for kind in classes_of(wiring):
        if kind == "memory":
            rate = take(1)
            if wiring.cache:
                messages, copies = take(2)
                cached = messages, copies
            links[kind] = Links(0.0, rate, rate)
        else:
            links[kind] = Links(take(1)[0], take(flows), take(flows))
    number = len(_costs_of(wiring))
    programs, *native = (Costs(*take(number)) for _ in software_of(wiring))
    return Constants(links, programs, native[0] if native else None, cached)
