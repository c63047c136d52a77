"""Constants of a network as a vector, what the simulator says of a pattern with them, and the network's file.

Times are nearly linear in the constants if those of the links are written as seconds a byte, so that is
what the vector holds.  `predicted` runs the very simulation that later uses what is found: the transport
model of Gloo or of shared memory, Gloo's own algorithms for ``native``, and sharing tables.

A constant has a name: the class of links or whose software, what it is, and of an entry of a sharing table
the number of flows (``between_nodes one_way 2``).  The name says where a fit begins, below which no value
comes, and which patterns the constant concerns:

    CLASS latency                seconds of a path; of trunks, by which a path through one is longer
    CLASS one_way 1, …           of a byte by numbers of flows, all in one direction; of memory only the first
    CLASS both_ways 1, …         the same where flows go the other way too
    programs overhead, …         what `COSTS` of our programs are, seconds each
    native overhead, …           of the vendor's collectives, if there are any
    `CACHED`                     where a size of caches is assumed

Those of links are the fields of a network of the kind that was measured.  A network file has them, and the
whole calibration as a table beside them (`network_toml`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any, TypeAlias, TypeVar

from collectives.timing import Assumptions, Job, Software, default_transport_model, simulate, simulate_jobs
from sim import Topology
from sim.topology.sharing_table import Sharing
from sim.units import MOST_SPEEDUP
from testbed.calibration import toml_text
from testbed.calibration.live.calibration import Calibration, LinkClass, LinkShares, SoftwareCosts
from testbed.calibration.live.plan import ITEM_SIZE, Pattern, Wiring
from testbed.output.table import spell_size


@dataclass(frozen=True)
class LinkFields:
    """Of a class of links: bytes/s, seconds of a path, and parts of the rate by numbers of flows."""

    rate: int
    latency: float
    one_way: Sequence[float]
    both_ways: Sequence[float]

    def named(self, prefix: str) -> dict[str, Any]:
        """Return them as a network's fields, which begin with *prefix*; a path has two links of a class."""
        return {
            f"{prefix}bandwidth": self.rate,
            f"{prefix}latency": f"{round(self.latency / 2 * _PS)}ps",
            f"{prefix}sharing": {"one_way": list(self.one_way), "both_ways": list(self.both_ways)},
        }


def network_fields(
    wiring: Wiring, links: Mapping[LinkClass, LinkFields], cache: int, speedup: float, copy_speedup: float
) -> dict[str, Any]:
    """Return the fields of a network of this *wiring*, as `Topology` and network files name them.

    Args:
        wiring: who shares what.
        links: of each class; of trunks the latency is that by which a path through one is longer.
        cache: bytes that fit into the caches of a host; 0: nobody has looked.
        speedup: how many times as fast messages of these are.
        copy_speedup: how many times as fast copies of these are.
    """
    near, far = links[wiring.classes[0]], links[wiring.classes[-1]]
    match wiring.kind:
        case "host":
            cached = {"cache": cache, "cache_speedup": speedup, "cache_copy_speedup": copy_speedup}
            return {**near.named(""), "memory_bandwidth": far.rate, **(cached if cache else {})}
        case "nodes":
            cards = {"nics_per_node": 1, **far.named("nic_")}
            return {"ranks_per_node": wiring.ranks_per_node, **near.named("intra_"), **cards}
        case "leaf_spine":
            return {"hosts_per_leaf": wiring.ranks_per_rack, **near.named(""), **far.named("uplink_")}
    return near.named("")


def network_toml(calibration: Calibration) -> str:
    """Return a network file for any number of ranks, with *calibration* as its table ``[calibration]``."""
    origin, cached = calibration.origin, calibration.cached
    wiring = Wiring(origin.num_ranks, origin.ranks_per_node, origin.ranks_per_rack, origin.transport == "shm")
    held = "median of " + ", ".join(
        f"{spell_size(fit.nbytes)}: {100 * fit.median_error:.1f} %" for fit in calibration.fits
    )
    head = {
        "schema": 1,
        "kind": wiring.kind,
        "description": f"{calibration.name}: {origin.network}",
        "source": f"testbed calibrate, {origin.measured}, {origin.num_ranks} ranks over {origin.transport}",
        **network_fields(
            wiring,
            _link_fields(calibration),
            *((cached.nbytes, cached.speedup, cached.copy_speedup) if cached else (0, 1.0, 1.0)),
        ),
    }
    lines = [
        *wrap(f"Written by testbed calibrate.  Median error of the fit: {held}.", 100),
        f"Nothing was measured of buffers below {origin.smallest} B or above {origin.largest} B.",
        "",
        "Software is no part of a network; what it adds is stated where something is simulated:",
        *(
            f"  {whose} --transport-model {origin.transport} {_options(costs)}"
            for whose, costs in (("ours:  ", calibration.programs), ("native:", calibration.native))
            if costs is not None
        ),
    ]
    comment = (f"# {line}".rstrip() for line in lines)
    below = toml_text.table("calibration", calibration.as_json())
    return "\n".join([*comment, *toml_text.fields(head), "", *below, ""])


def _link_fields(calibration: Calibration) -> dict[LinkClass, LinkFields]:
    """Return the fields of each class of links; of trunks the latency that they add."""
    found: dict[LinkClass, LinkFields] = {}
    for kind, shares in calibration.classes.items():
        table, latency = sharing_of(shares), shares.latency.value
        if kind == "trunk":
            latency = max(0.0, latency - calibration.classes["between_nodes"].latency.value)
        found[kind] = LinkFields(round(shares.rate.value), latency, table.one_way, table.both_ways)
    return found


def _options(costs: SoftwareCosts) -> str:
    """Return the options by which commands take *costs*."""
    return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in costs.options("ns").items())


def sharing_of(shares: LinkShares) -> Sharing:
    """Return *shares* as a sharing table."""
    one_way, both_ways = (
        tuple(round(min(1.0, own.value), 4) for own in ways) for ways in (shares.one_way, shares.both_ways)
    )
    return Sharing(one_way, both_ways)


_PS = 1e12
CACHED = ("inside_node cached_way 1", "inside_node copied_way 1")
"""Names of what a byte of one flow, and one that is copied, takes where buffers fit into caches."""
COSTS = ("overhead", "arrival", "reduced", "call", "copied")
"""Of software: of a message on either side, until its arrival is known, of a reduced byte; where they are
looked for, of a call, and of a byte that is copied around a program."""
MOST_FLOWS = 4
"""Entries of a sharing table that are found; the last goes on."""
_FASTER = 1.5
"""Times as fast that memory begins to be taken for where buffers fit into caches."""
_FASTEST = 10.0
"""Times the rate of the largest rows that a link of unknown rate is taken to reach at most."""
_TIME_STEP = 5e-6
_RELATIVE_STEP = 0.02

T = TypeVar("T")
Values: TypeAlias = Mapping[str, float]
"""Constants by their names."""


def network(wiring: Wiring, values: Values, rates: Mapping[LinkClass, float] | None = None) -> Topology:
    """Return the network of this *wiring* with constants of these *values*.

    Args:
        wiring: who shares what.
        values: what was found.
        rates: bytes/s of links whose rates are known; others have what was found: the most that any number
            of flows one way was found to get together.
    """
    links: dict[LinkClass, LinkFields] = {}
    for kind in wiring.classes:
        ways = ways_of(values, kind)
        rate = max(1, round((rates or {}).get(kind, 1 / min(ways[0]))))
        parts = ([min(1.0, 1 / (each * rate)) for each in way] for way in ways)
        links[kind] = LinkFields(rate, values.get(f"{kind} latency", 0.0), *parts)
    fields = network_fields(wiring, links, wiring.cache, *cache_speedups(values))
    if wiring.kind == "nodes":
        fields["num_nodes"] = -(-wiring.num_ranks // wiring.ranks_per_node)
    made: Topology = getattr(Topology, wiring.kind)(num_ranks=wiring.num_ranks, name="calibrated", **fields)
    return made


def cache_speedups(values: Values) -> tuple[float, float]:
    """Return how many times as fast messages and copies are where buffers fit into caches."""
    if CACHED[0] not in values:
        return 1.0, 1.0
    beyond = values["inside_node one_way 1"], values["programs copied"]
    messages, copies = (
        min(MOST_SPEEDUP, max(1.0, far / max(values[near], far / MOST_SPEEDUP))) if far else 1.0
        for far, near in zip(beyond, CACHED, strict=True)
    )
    return messages, copies


def ways_of(found: Mapping[str, T], kind: LinkClass) -> tuple[tuple[T, ...], tuple[T, ...]]:
    """Return what was *found* of a byte by numbers of flows, one way and both ways; memory has only one."""
    one_way, both_ways = (
        tuple(found[name] for k in range(1, MOST_FLOWS + 1) if (name := f"{kind} {way} {k}") in found)
        for way in ("one_way", "both_ways")
    )
    return one_way, both_ways or one_way


def _bandwidth(seconds: float) -> int | None:
    """Return bytes/s at which a byte takes *seconds*, None for no time."""
    return None if seconds <= 0 else max(1, round(1 / seconds))


def predicted(pattern: Pattern, topology: Topology, values: Values) -> float:
    """Return the seconds that the simulator says *pattern* takes."""
    by = "native" if pattern.is_native else "programs"
    overhead, arrival, reduced, call, copied = (values.get(f"{by} {cost}", 0.0) for cost in COSTS)
    software = Software(
        transport_model=default_transport_model(topology),
        overhead=f"{round(overhead * _PS)}ps",
        arrival_overhead=f"{round(arrival * _PS)}ps",
        reduction_bandwidth=_bandwidth(reduced),
        call_overhead=f"{round(call * _PS)}ps",
        copy_bandwidth=_bandwidth(copied),
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


def names_of(wiring: Wiring) -> list[str]:
    """Return the names of all constants, in the order of a vector; memory has only a rate."""
    names = []
    flows = min(MOST_FLOWS, max(1, wiring.num_ranks - 1))
    for kind in wiring.classes:
        if kind == "memory":
            names += ["memory one_way 1", *(CACHED if wiring.cache else ())]
            continue
        ways = (f"{way} {k}" for way in ("one_way", "both_ways") for k in range(1, flows + 1))
        names += [f"{kind} {what}" for what in ("latency", *ways)]
    costs = COSTS if wiring.in_memory else COSTS[:3]  # a network hides what calls take
    return [*names, *(f"{by} {cost}" for by in software_of(wiring) for cost in costs)]


def software_of(wiring: Wiring) -> tuple[str, ...]:
    """Return whose costs are found: of our programs and, where there are any, of the vendor's collectives."""
    return ("programs",) if wiring.in_memory else ("programs", "native")


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
    return byte_seconds * _RELATIVE_STEP if name.endswith(("reduced", "copied")) else _TIME_STEP


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
