"""Rounding of a packing: whole chunks for trees, so that the fullest link has little more than by weights."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable

import numpy as np

from collectives.synthesis.demand import Demand
from collectives.synthesis.packing import Packing
from collectives.synthesis.routes import Float64Array
from sim.units import Int64Array

_MOVES = 200
_NORM = 400
_GOOD = 1.002
"""Of the load by weights, what is near enough."""


def whole_chunks(packing: Packing, demand: Demand, chunks: int) -> Int64Array:
    """Return how many chunks each tree carries; those of a group are *chunks* in number.

    Of an all-reduce, whose trees may have any root, all trees together carry *chunks* for each root.
    """
    wanted = chunks * (len(demand.roots) if demand.kind == "reducing" else 1)
    exact = packing.weights / demand.share * wanted
    by_group = defaultdict[Hashable, list[int]](list)
    for number, tree in enumerate(packing.trees):
        by_group[demand.group_of(tree)].append(number)
    groups = [np.array(members) for members in by_group.values()]
    counts = np.floor(exact + 1e-6).astype(np.int64)
    loads = packing.loads
    total: Float64Array = counts @ loads
    for members in groups:
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
    several = [members for members in groups if len(members) > 1]
    return _moved(counts, loads, several, _GOOD * packing.seconds_per_byte / demand.share * wanted)


def _fullest(loads: Float64Array) -> Float64Array:
    """Return the load of the fullest links, by a norm that also counts those nearly as full."""
    norm: Float64Array = ((loads / loads.max()) ** _NORM).sum(axis=1) ** (1 / _NORM) * loads.max()
    return norm


def _moved(counts: Int64Array, loads: Float64Array, groups: list[Int64Array], enough: float) -> Int64Array:
    """Return *counts* after chunks have changed to other trees of their root for as long as that helps."""
    total = counts @ loads
    for _ in range(_MOVES):
        if total.max() <= enough:
            break
        best = (_fullest(total[None])[0] * (1 - 1e-9), -1, -1)
        fullest = loads[:, total.argmax()] > 0
        for members in groups:
            for giver in members[(counts[members] > 0) & fullest[members]].tolist():
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
