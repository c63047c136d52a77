"""Kinds of machines: what a network without measurements may borrow of a preset.

A file with a [hardware] table and no measured ones is of a known kind where a preset has the same generation
of GPUs, as many of them on a node, and about the same bandwidth out of a node (within 15 %); of several such
presets the one whose network is nearest, in bandwidth and latency (as logarithms).  What was measured on
machines of that preset's kind then predicts it, and the prediction says so.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache

from sim import load_network, preset_names
from sim.topology import Topology

ABOUT = 0.15


def with_kind(topology: Topology) -> tuple[Topology, str]:
    """Return *topology* with the measured tables of a preset of its kind, and the preset's name.

    A topology with tables of its own, or of no known kind, comes back as it is, with no name.
    """
    if topology.measured or topology.hardware is None or topology.num_links == 0:
        return topology, ""
    nearest = min(_presets(), key=lambda preset: _distance(topology, preset), default=None)
    if nearest is None or math.isinf(_distance(topology, nearest)):
        return topology, ""
    return replace(topology, measured=nearest.measured), nearest.name.partition(" ")[0]


@cache
def _presets() -> tuple[Topology, ...]:
    """Return two nodes of each preset that has hardware and measured tables."""
    found = []
    for name in preset_names():
        network = load_network(name)
        if network.fields.hardware is not None and network.fields.measured:
            found.append(network.topology(2 * getattr(network.fields, "ranks_per_node", 1)))
    return tuple(found)


def _distance(topology: Topology, preset: Topology) -> float:
    """Return how far two networks are apart; infinite where they are of different kinds."""
    assert topology.hardware is not None
    assert preset.hardware is not None
    if topology.hardware.generation != preset.hardware.generation:
        return math.inf
    if topology.ranks_per_node != preset.ranks_per_node:
        return math.inf
    (rate, latency), (other, slow) = _between(topology), _between(preset)
    if rate is None or other is None:  # one node: what is between nodes does not matter
        return 0.0
    if abs(rate / other - 1) > ABOUT:
        return math.inf
    return abs(math.log(rate / other)) + abs(math.log((latency + 1) / (slow + 1)))


def _between(topology: Topology) -> tuple[float | None, int]:
    """Return bytes/s out of a node, and the latency of a link there; None where there is one node."""
    if topology.num_ranks <= topology.ranks_per_node:
        return None, 0
    for cut in topology.routing.cuts():
        if cut.name == "node":
            links = cut.links_out[0]
            links = links[links >= 0]
            return float(topology.link_bandwidth[links].sum()), int(topology.link_latency[links].max())
    return None, 0
