"""In-network reduction: collectives where the switches reduce and multicast, as NVLink SHARP (NVLS) does.

Closed forms, not a simulation: no program is run, no message is matched and nothing else is on the
network.  They say what the links allow when all ranks start together and data streams through the switch.

*One switch* with g ranks and a buffer of n bytes, of which each rank owns a part of m = ⌈n/g⌉.  A rank
reads the sum of a part from the switch, which reads that part from all g ranks; a rank writes a part to
the switch, which writes it to all g.  So each rank gives out and takes in:

    collective      gives out  takes in  passes through the switch
    reduce_scatter  n          m         one
    all_gather      m          n         one
    broadcast       n (root)   n         one
    reduce          n          n (root)  one
    all_reduce      n + m      m + n     two: the sums, then what is made of them

The time is, per pass, the largest latency up and the largest down, and once the larger of the two amounts
over the rate of the slowest link times NVLS's efficiency: 0.85 on Hopper, 0.74 on Blackwell, 1 on a network
that does not say what its hardware is.  Which rank is the root does not matter.

*Several switches* (nodes, or leaves without nodes) with g ranks each: the parts are reduced and scattered
at each switch, then rings of the i-th ranks of all switches carry them between switches, then they are
gathered at each switch: an all_reduce is all three, one after another, a reduce_scatter the first two and an
all_gather the last two.  A ring's step takes the largest latency of a path plus what its busiest link
needs.  NCCL lets the three overlap (NVLSTree), so with large sizes this is slower by up to a factor of
two.  Broadcast and reduce are not modelled over several switches.

Left out: NCCL's software (25 us per call, see `collectives.timing.formulas.nccl.model`), and what a switch
needs to reduce.

Sources: NVIDIA/nccl, ``src/device/all_reduce.h`` (which rank reads and writes what) and
``src/graph/tuning.cc`` (``nvlsEfficiency``); Klenk et al., "An In-Network Architecture for Accelerating
Shared-Memory Multiprocessor Collectives", ISCA 2020.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from collectives.errors import NotSupportedError
from collectives.timing.formulas.nccl.constants import NCCL_2_30
from sim.topology import Topology
from sim.topology.placement import neighbourhoods
from sim.units import Int64Array, transfer_ps

ONE_SWITCH = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce")
SEVERAL_SWITCHES = ONE_SWITCH[:3]


def in_network_ps(collective: str, nbytes: int, topology: Topology, hosts: Sequence[int]) -> int:
    """Return the time of *collective* in picoseconds; 0 for one rank or no bytes.

    Args:
        collective: one of `ONE_SWITCH`, or of `SEVERAL_SWITCHES` where the ranks are on several.
        nbytes: size of the buffer, as nccl-tests counts it.
        topology: its switches must reduce (``in_network_reduction``).
        hosts: the place of each rank of the group, distinct.

    Raises:
        NotSupportedError: the switches do not reduce; the collective is not modelled here; ranks of a
            node hang on no common switch; or there are more ranks on one switch than on another.
        ValueError: *nbytes* is negative.
    """
    what = f"in-network {collective} on {topology.name}"
    if not topology.in_network_reduction:
        raise NotSupportedError(f"{what}: its switches do not reduce; use an algorithm such as ring")
    if nbytes < 0:
        raise ValueError(f"nbytes must be at least 0, got {nbytes}")

    places = np.asarray(hosts, dtype=np.int64)
    domains = _domains(topology, places, what)
    allowed = ONE_SWITCH if len(domains) == 1 else SEVERAL_SWITCHES
    if collective not in allowed:
        on = "one switch" if len(domains) == 1 else f"{len(domains)} switches"
        raise NotSupportedError(f"{what}: on {on}, only {', '.join(allowed)} are modelled")
    if len(places) == 1 or nbytes == 0:
        return 0

    part = -(-nbytes // domains.shape[1])
    passes = 2 if collective == "all_reduce" else 1
    at_switch = _Switch.of(topology, domains, what) if domains.shape[1] > 1 else None
    if len(domains) == 1:
        assert at_switch is not None, "there is more than one rank"
        return at_switch.ps(nbytes + part if passes == 2 else nbytes, passes)

    half = at_switch.ps(nbytes, 1) if at_switch else 0
    return passes * (half + _half_ring_ps(topology, domains, part))


@dataclass(frozen=True, slots=True)
class _Switch:
    """What the links between switches and their ranks allow: picoseconds, and payload bytes per second."""

    latency_ps: int
    rate: int

    @classmethod
    def of(cls, topology: Topology, domains: Int64Array, what: str) -> _Switch:
        links = topology.routes(domains.ravel(), np.roll(domains, -1, axis=1).ravel())
        switches = topology.routing.wiring().head[links[:, 0]].reshape(domains.shape)
        apart = (switches != switches[:, :1]).any(axis=1) | (links.reshape(len(domains), -1) < 0).any(axis=1)
        if links.shape[1] != 2 or apart.any():
            where = ", ".join(map(str, domains[apart.argmax()]))
            raise NotSupportedError(f"{what}: the ranks at places {where} hang on no common switch")
        hardware = topology.hardware
        efficiency = NCCL_2_30.nvls_efficiency[hardware.generation] if hardware else 1
        if hardware and not efficiency:
            raise NotSupportedError(f"{what}: {hardware.generation} GPUs have no switches that reduce")
        latency = topology.link_latency[links].max(axis=0).sum()
        slowest = int(topology.link_bandwidth[links].min())
        return cls(int(latency), max(1, int(slowest * Fraction(str(efficiency)))))

    def ps(self, nbytes: int, passes: int) -> int:
        """Return the time of *nbytes* that pass through the switch so many times."""
        return passes * self.latency_ps + transfer_ps(nbytes, self.rate)


def _domains(topology: Topology, places: Int64Array, what: str) -> Int64Array:
    """Return the places on each switch, shape (switches, ranks on each), both in order of the ranks."""
    switch_of = neighbourhoods(topology)[places]
    if (switch_of < 0).any():
        raise NotSupportedError(f"{what}: its ranks hang on no switch")
    _, first, inverse, sizes = np.unique(
        switch_of, return_index=True, return_inverse=True, return_counts=True
    )
    if sizes.min() < sizes.max():
        raise NotSupportedError(
            f"{what}: {sizes.max()} ranks on one switch and {sizes.min()} on another; "
            "the model wants equally many on each"
        )
    return places[np.argsort(first[inverse], kind="stable")].reshape(len(first), -1)


def _half_ring_ps(topology: Topology, domains: Int64Array, part: int) -> int:
    """Return the time of all rings between switches at once, each to gather, or to reduce, *part* bytes."""
    links = topology.routes(domains.ravel(), np.roll(domains, -1, axis=0).ravel())
    latency = int(np.where(links >= 0, topology.link_latency[links], 0).sum(axis=1).max())
    used, messages = np.unique(links[links >= 0], return_counts=True)
    chunk = -(-part // len(domains))
    rates = topology.link_bandwidth[used]
    transfer = max(
        transfer_ps(int(count) * chunk, int(rate)) for count, rate in zip(messages, rates, strict=True)
    )
    return (len(domains) - 1) * (latency + transfer)
