"""Rounding of a packing: whole chunks for trees, so that the fullest link has little more than by weights."""

from __future__ import annotations

import numpy as np

from collectives.synthesis.packing import Demand, Packing
from collectives.synthesis.routes import Float64Array
from sim.units import Int64Array

_MOVES = 200
_GOOD = 1.002
"""Of the load by weights, what is near enough."""


def whole_chunks(packing: Packing, demand: Demand, chunks: int) -> Int64Array:
    """Return how many chunks each tree carries; those of a root are *chunks* in number.

    Of an all-reduce, whose trees may have any root, all trees together carry *chunks* for each root.
    """
    exact = packing.weights / demand.share * chunks
    groups: list[list[int]] = []
    if demand.is_reduction:
        exact = exact * len(demand.roots)
        groups.append(list(range(len(packing.trees))))
    else:
        groups += [
            [number for number, tree in enumerate(packing.trees) if tree.root == root]
            for root in demand.roots
        ]
    counts = np.floor(exact + 1e-6).astype(np.int64)
    loads = packing.loads
    total: Float64Array = counts @ loads
    for group in groups:
        members = np.array(group)
        wanted = chunks * (len(demand.roots) if demand.is_reduction else 1)
        while counts[members].sum() < wanted:
            ahead = (counts - exact)[members] < 1.0
            options = members[ahead] if ahead.any() else members
            chosen = options[_fullest(total + loads[options]).argmin()]
            counts[chosen] += 1
            total = total + loads[chosen]
        while counts[members].sum() > wanted:
            options = members[counts[members] > 0]
            chosen = options[_fullest(total - loads[options]).argmin()]
            counts[chosen] -= 1
            total = total - loads[chosen]
    shares = chunks * (len(demand.roots) if demand.is_reduction else 1)
    return _moved(counts, loads, groups, _GOOD * packing.seconds_per_byte / demand.share * shares)


def _fullest(loads: Float64Array) -> Float64Array:
    """Return the load of the fullest links, by a norm that also counts those nearly as full."""
    norm: Float64Array = ((loads / loads.max()) ** 16).sum(axis=1) ** (1 / 16) * loads.max()
    return norm


def _moved(counts: Int64Array, loads: Float64Array, groups: list[list[int]], enough: float) -> Int64Array:
    """Return *counts* after chunks have changed to other trees of their root for as long as that helps."""
    total = counts @ loads
    for _ in range(_MOVES):
        if total.max() <= enough:
            break
        best = (_fullest(total[None])[0] * (1 - 1e-9), -1, -1)
        for group in groups:
            members = np.array(group)
            for giver in members[counts[members] > 0].tolist():
                values = _fullest(total - loads[giver] + loads[members])
                taker = int(values.argmin())
                if values[taker] < best[0]:
                    best = (float(values[taker]), giver, int(members[taker]))
        _, giver, taker = best
        if giver < 0:
            break
        counts[giver] -= 1
        counts[taker] += 1
        total = total - loads[giver] + loads[taker]
    return counts
