"""Routes of many pairs of ranks as one table."""

from __future__ import annotations

import numpy as np

from sim.topology.routing.protocol import Routing
from sim.units import Int64Array

_BLOCK = 2**14  # connections that are routed at once, so that they stay in the processor's cache


def route_table(
    routing: Routing, sources: Int64Array, destinations: Int64Array, channels: Int64Array
) -> Int64Array:
    """Return the links of each of m connections in order, then -1; int64 of shape (m, longest route)."""
    blocks = [
        _block(routing, *(ends[start : start + _BLOCK] for ends in (sources, destinations, channels)))
        for start in range(0, len(sources), _BLOCK)
    ]
    links = np.full((max(map(len, blocks), default=0), len(sources)), -1, dtype=np.int64)
    for number, block in enumerate(blocks):
        links[: len(block), number * _BLOCK : (number + 1) * _BLOCK] = block
    return links.T


def _block(
    routing: Routing, sources: Int64Array, destinations: Int64Array, channels: Int64Array
) -> Int64Array:
    """Return the routes of m pairs, at least one, shape (h, m), without the gaps between links."""
    turns = list(routing.walk(sources, destinations, channels))
    pairs = len(sources)
    links = np.full(len(turns) * pairs, -1, dtype=np.int64)
    slot = np.arange(pairs)
    for turn in turns:
        links[slot] = turn  # -1 is written over at the next turn
        slot += pairs * (turn >= 0)
    return links.reshape(len(turns), pairs)[: slot.max() // pairs]
