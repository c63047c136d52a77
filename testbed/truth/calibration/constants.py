"""Constants of a network as a vector, and what the simulator says of a pattern with them.

Times are nearly linear in the constants if those of the links are written as seconds a byte, so that is
what the vector holds.  `predicted` runs the very simulation that later uses what is found: the transport
model of Gloo, its own algorithms for ``native``, and sharing tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collectives.simulation import Job, simulate, simulate_jobs
from sim import Topology
from testbed.truth.calibration.plan import Wiring
from testbed.truth.calibration.quantities import LinkClass
from testbed.truth.calibration.rows import ITEM_SIZE, Pattern

_PS = 1e12
MOST_FLOWS = 4
"""Entries of a sharing table that are found; the last goes on."""


@dataclass(frozen=True)
class Costs:
    """Of software: seconds of a message on either side, until its arrival is known, and of a reduced byte."""

    overhead: float
    arrival: float
    reduced: float


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
    """All that is found: of each class of links, of our programs and of the vendor's collectives."""

    links: Mapping[LinkClass, Links]
    programs: Costs
    native: Costs


def classes_of(wiring: Wiring) -> tuple[LinkClass, ...]:
    """Return the classes of links on a network of this *wiring*, those at the ranks first."""
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


def predicted(pattern: Pattern, topology: Topology, constants: Constants) -> float:
    """Return the seconds that the simulator says *pattern* takes."""
    costs = constants.native if pattern.is_native else constants.programs
    software: dict[str, Any] = {
        "overhead": f"{round(costs.overhead * _PS)}ps",
        "arrival_overhead": f"{round(costs.arrival * _PS)}ps",
        "reduction_bandwidth": None if costs.reduced <= 0 else max(1, round(1 / costs.reduced)),
    }
    jobs = [
        Job(
            pattern.algorithm,
            pattern.nbytes,
            collective=pattern.collective,
            itemsize=ITEM_SIZE,
            placement=members,
            transport_model="gloo",
            **software,
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
            transport_model="gloo",
            **software,
        ).seconds
    return max(run.seconds for run in simulate_jobs(jobs, topology=topology))


def names_of(wiring: Wiring, flows: int) -> list[str]:
    """Return the names of all constants, in the order of a vector."""
    links = [
        f"{kind} {what}"
        for kind in classes_of(wiring)
        for what in (
            "latency",
            *(f"{way} {k}" for way in ("one_way", "both_ways") for k in range(1, flows + 1)),
        )
    ]
    return [*links, *(f"{by} {what}" for by in ("programs", "native") for what in Costs.__dataclass_fields__)]


def constants_of(values: Sequence[float], wiring: Wiring, flows: int) -> Constants:
    """Return what a vector in the order of `names_of` says."""
    rest = list(values)

    def take(count: int) -> tuple[float, ...]:
        taken = tuple(rest[:count])
        del rest[:count]
        return taken

    links = {kind: Links(take(1)[0], take(flows), take(flows)) for kind in classes_of(wiring)}
    return Constants(links, Costs(*take(3)), Costs(*take(3)))
