"""Times by measurement: what a table of measured collectives says of sizes and node counts beside its own.

A network file may hold what collectives were measured to take (`sim.measured.MeasuredCurve`); `testbed
calibrate` writes such tables.  Of a number of nodes that was measured, the time is

    least over the lines LL, LL128, Simple of (latency + size / bandwidth)  ×  the factor at that size

where the factor is what was measured beside the lines, interpolated over the logarithm of the size.

Other counts are carried on from the two measured counts nearest to them, line by line:

* latency rises with log2 of the number of nodes (of ranks, inside a node), as that of trees does, or in
  proportion to that number, as that of rings does: of collectives that libraries carry out by rings or pair
  by pair, and of others where between two counts of several nodes the least latency has itself risen in
  proportion (by 0.9 of it); never downwards, and for each line by at least as much as for the one before it;
* the time of a byte keeps its bus bandwidth from the largest count on, between two counts it runs like the
  latency; but an all-reduce of which two nodes are the most that was measured takes at least what a ring
  needs, 2(p-1)/p of the bytes through the links of a node.  On exactly two nodes NCCL takes a tree, which
  needs half of that;
* the factors stay behind, as protocols change at other sizes there.

Every time has an interval in which nine of ten measurements are expected: the spread that the table states;
twice that beyond the sizes that were measured and where a count is carried on, and then also everything
between a latency that stays as it is and one that rises in proportion.

Assumed: the machine, its library and its settings are those measured; one call at a time; all ranks of
equally many nodes.  No link of the network is looked at, but for the ring's bound.

Sources: the least of three lines: the protocols of NCCL, src/graph/tuning.cc; two nodes: `sim/measured.py`
and docs/truth.md.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TypeAlias

import numpy as np

from collectives.errors import NotSupportedError
from collectives.timing.formulas.bandwidth import busbw
from sim.measured import PROTOCOLS, MeasuredCurve
from sim.topology import Topology
from sim.units import SECOND

IN_PROPORTION = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")
"""Collectives whose number of steps, or of messages of a rank, is in proportion to the number of ranks."""
RISEN = 0.9

LARGE = 2**24
"""Bytes from which on a curve's ``spread_large`` holds."""

Lines: TypeAlias = list[tuple[float, float]]
"""Latency in seconds and seconds per byte, of each of `PROTOCOLS`."""


@dataclass(frozen=True)
class Expected:
    """What a collective is expected to take.

    Attributes:
        seconds: the time.
        low: nine of ten measurements are expected to lie from here, in seconds, …
        high: … to here.
        protocol: the line that gave the time.
        latency_part: the part of that line's time that is latency.
        carried: how the time goes beyond what was measured, in words; empty where it does not.
    """

    seconds: float
    low: float
    high: float
    protocol: str
    latency_part: float
    carried: str = ""


def measured_on(topology: Topology, hosts: Sequence[int], collective: str, nbytes: int) -> Expected:
    """Return what *collective* takes among ranks at places of *topology*, by what was measured there.

    Args:
        topology: the network, with measured curves.
        hosts: the place of each rank of the group.
        collective: its name.
        nbytes: size of the buffer, as nccl-tests counts it.

    Raises:
        NotSupportedError: nothing was measured from which this follows; the message says what was.
    """
    what = f"measurements on {topology.name}"
    if not topology.measured:
        raise NotSupportedError(
            f"{what}: its file holds none; make one that does with testbed calibrate --from"
        )
    nodes = [host // topology.ranks_per_node for host in hosts]
    sizes = Counter(nodes)
    if len(set(sizes.values())) > 1 or len(list(groupby(nodes))) > len(sizes):
        raise NotSupportedError(
            f"{what}: expected equally many ranks on each node, one node after another (placement 'packed')"
        )
    if len(hosts) == 1:
        return Expected(0.0, 0.0, 0.0, PROTOCOLS[-1], 0.0)

    num_nodes, ranks_per_node = len(sizes), len(nodes) // len(sizes)
    curves = [own for own in topology.measured if own.collective == collective]
    for own in curves:
        if (own.num_nodes, own.ranks_per_node) == (num_nodes, ranks_per_node):
            return _on_measured_count(own, nbytes)
    known = _to_carry_from(curves, num_nodes, ranks_per_node)
    if len(known) < 2:
        there = ", ".join(f"{own.num_nodes} × {own.ranks_per_node}" for own in curves)
        others = ", ".join(dict.fromkeys(own.collective for own in topology.measured))
        raise NotSupportedError(
            f"{what}: {collective} on {num_nodes} × {ranks_per_node} ranks follows from none of them; "
            f"{collective} was measured on {there or 'nothing'} (other counts need two to be carried on "
            f"from), and there is {others}"
        )
    return _carried(known, num_nodes, ranks_per_node, nbytes, _node_bandwidth(topology))


def lines_of(curve: MeasuredCurve) -> Lines:
    """Return the lines of *curve*, three of them: the first stands for those that are left out."""
    lines = [(own.latency_ps / SECOND, 1 / own.bandwidth) for own in curve.lines]
    return [lines[0]] * (len(PROTOCOLS) - len(lines)) + lines


def least_of(lines: Lines, nbytes: int) -> tuple[float, str]:
    """Return the least time of *lines* in seconds, and whose it is; of equals the last."""
    times = [latency + nbytes * per_byte for latency, per_byte in lines]
    best = min(range(len(times)), key=lambda k: (times[k], -k))
    return times[best], PROTOCOLS[best]


def measured_at(curve: MeasuredCurve, nbytes: int) -> float:
    """Return the time of *nbytes* by *curve*, in seconds: the least of its lines, with the factor there."""
    seconds, _ = least_of(lines_of(curve), nbytes)
    if not curve.factors:
        return seconds
    at = [math.log2(max(size, 1)) for size in curve.sizes]
    logs = [math.log(factor) for factor in curve.factors]
    return seconds * math.exp(float(np.interp(math.log2(max(nbytes, 1)), at, logs)))


def _on_measured_count(curve: MeasuredCurve, nbytes: int) -> Expected:
    lines = lines_of(curve)
    seconds, (_, protocol) = measured_at(curve, nbytes), least_of(lines, nbytes)
    within = 1 + _spread((curve,), nbytes)
    return Expected(
        seconds,
        seconds / within,
        seconds * within,
        protocol,
        _latency_part(lines, protocol, nbytes),
        "; ".join(filter(None, (curve.carried, _beyond((curve,), nbytes)))),
    )


def _latency_part(lines: Lines, protocol: str, nbytes: int) -> float:
    latency, per_byte = lines[PROTOCOLS.index(protocol)]
    total = latency + nbytes * per_byte
    return latency / total if total else 0.0


def _to_carry_from(
    curves: Sequence[MeasuredCurve], num_nodes: int, ranks_per_node: int
) -> list[MeasuredCurve]:
    """Return the two curves from whose counts the wanted one is carried on; fewer where there are not two."""
    if num_nodes == 1:
        usable = [own for own in curves if own.num_nodes == 1]
    else:
        usable = [own for own in curves if own.ranks_per_node == ranks_per_node]
        several = [own for own in usable if own.num_nodes > 1]
        usable = several if len(several) > 1 else usable if several else []
    wanted = num_nodes * ranks_per_node
    usable.sort(key=lambda own: own.num_ranks)
    below = [own for own in usable if own.num_ranks < wanted]
    above = [own for own in usable if own.num_ranks > wanted]
    if below and above:
        return [below[-1], above[0]]
    return below[-2:] or above[:2]


def _carried(
    known: list[MeasuredCurve], num_nodes: int, ranks_per_node: int, nbytes: int, node_bandwidth: float
) -> Expected:
    """Return the time of a count that was not measured, from those of two that were."""
    first, last = known
    wanted = num_nodes * ranks_per_node
    doublings = math.log2(last.num_ranks / first.num_ranks)
    part = math.log2(wanted / first.num_ranks) / doublings
    proportion = (wanted - first.num_ranks) / (last.num_ranks - first.num_ranks)
    inside = 0 < part < 1

    logarithmic: Lines = []
    linear: Lines = []
    steady: Lines = []
    least_rise = 0.0
    for (low, byte_low), (high, byte_high) in zip(lines_of(first), lines_of(last), strict=True):
        rise = max(high - low, least_rise)
        least_rise = rise
        per_byte = _per_byte(first, last, byte_low, byte_high, wanted, min(part, 1.0))
        if num_nodes > 2 and last.num_nodes <= 2:
            per_byte = max(per_byte, _bus_factor(last.collective, wanted) / node_bandwidth)
        base = high - rise
        logarithmic.append((max(base + part * rise, 0.0), per_byte))
        linear.append((max(base + proportion * rise, 0.0), per_byte))
        steady.append((high if part > 1 else low, per_byte))

    lines = linear if _rises_in_proportion(first, last) else logarithmic
    seconds, protocol = least_of(lines, nbytes)
    bounds = (linear, logarithmic) if inside else (linear, steady)
    others = [least_of(bound, nbytes)[0] for bound in bounds]
    within = 1 + 2 * _spread((first, last), nbytes)
    counts = f"{first.num_nodes} × {first.ranks_per_node} and {last.num_nodes} × {last.ranks_per_node} ranks"
    return Expected(
        seconds,
        min(seconds, *others) / within,
        max(seconds, *others) * within,
        protocol,
        _latency_part(lines, protocol, nbytes),
        "; ".join(filter(None, (f"carried on from {counts}", last.carried, _beyond((first, last), nbytes)))),
    )


def _rises_in_proportion(first: MeasuredCurve, last: MeasuredCurve) -> bool:
    """Return whether latency rises with the number of ranks, not with its logarithm."""
    risen = last.lines[0].latency_ps / max(first.lines[0].latency_ps, 1)
    proportional = first.num_nodes > 1 and risen >= RISEN * last.num_ranks / first.num_ranks
    return first.collective in IN_PROPORTION or proportional


def _per_byte(
    first: MeasuredCurve, last: MeasuredCurve, low: float, high: float, num_ranks: int, part: float
) -> float:
    """Return seconds per byte at *num_ranks*, by bus bandwidth."""
    low /= _bus_factor(first.collective, first.num_ranks)
    high /= _bus_factor(last.collective, last.num_ranks)
    steady = low if part <= 0 else low + part * (high - low)
    return steady * _bus_factor(first.collective, num_ranks)


def _bus_factor(collective: str, num_ranks: int) -> float:
    return busbw(collective, 1, 1.0, num_ranks)


def _node_bandwidth(topology: Topology) -> float:
    """Return bytes/s that can leave a node, the least of all; infinite where no cut goes around nodes."""
    for cut in topology.routing.cuts():
        if cut.name == "node":
            out = np.where(cut.links_out >= 0, topology.link_bandwidth[cut.links_out], 0).sum(axis=1)
            return float(out.min())
    return math.inf


def _spread(curves: Sequence[MeasuredCurve], nbytes: int) -> float:
    spread = max(own.spread if nbytes < LARGE else own.spread_large for own in curves)
    return 2 * spread if _beyond(curves, nbytes) else spread


def _beyond(curves: Sequence[MeasuredCurve], nbytes: int) -> str:
    """Return whether *nbytes* lies beyond the sizes measured, in words."""
    least, most = max(own.sizes[0] for own in curves), min(own.sizes[-1] for own in curves)
    if nbytes < least:
        return f"below {least} bytes, the least measured"
    return f"above {most} bytes, the most measured" if nbytes > most else ""
