"""The cheapest tree that reaches all ranks from a root, and the shallowest of those that cost as much.

Source: Edmonds, "Optimum branchings", J. Research of the NBS 71B, 1967: every vertex takes the cheapest edge
into it; circles become one vertex, into which an edge costs what it adds, until there are none.
"""

from __future__ import annotations

import numpy as np

from collectives.synthesis.routes import Float64Array
from sim.units import Int64Array

_AS_CHEAP = 1 + 1e-9


def cheapest_tree(weights: Float64Array, root: int) -> Int64Array:
    """Return the parent of each vertex in the cheapest tree out of *root*, whose own is -1.

    Args:
        weights: of the edge from u to v, shape (n, n), not negative; infinity on the diagonal.
        root: a vertex.
    """
    size = len(weights)
    parent: Int64Array = weights.argmin(axis=0)
    parent[root] = -1
    circle = _circles(parent)
    if circle.max() < 0:
        return parent

    # Vertices of the contracted graph: the circles first, then what is on none.
    num_circles = circle.max() + 1
    alone = np.flatnonzero(circle < 0)
    vertex = circle.copy()
    vertex[alone] = num_circles + np.arange(len(alone))
    saved = np.where(circle >= 0, weights[parent, np.arange(size)], 0.0)
    reduced = weights - saved

    order = np.argsort(vertex, kind="stable")
    starts = np.searchsorted(vertex[order], np.arange(num_circles + len(alone)))
    merged = np.minimum.reduceat(reduced[order][:, order], starts, axis=0)
    merged = np.minimum.reduceat(merged, starts, axis=1)
    np.fill_diagonal(merged, np.inf)

    contracted = cheapest_tree(merged, int(vertex[root]))
    members = np.split(order, starts[1:])
    for inner, outer in enumerate(contracted.tolist()):
        if outer < 0:
            continue
        tails, heads = members[outer], members[inner]
        place = int(reduced[np.ix_(tails, heads)].argmin())
        tail, head = divmod(place, len(heads))
        parent[heads[head]] = tails[tail]
    return parent


def _circles(parent: Int64Array) -> Int64Array:
    """Return on which circle each vertex is, numbered from 0; -1: on none."""
    parents = parent.tolist()
    circle = [-1] * len(parents)
    seen = [-1] * len(parents)
    count = 0
    for start in range(len(parents)):
        vertex = start
        while vertex >= 0 and seen[vertex] < 0:
            seen[vertex] = start
            vertex = parents[vertex]
        if vertex >= 0 and seen[vertex] == start and circle[vertex] < 0:
            while circle[vertex] < 0:
                circle[vertex] = count
                vertex = parents[vertex]
            count += 1
    return np.array(circle, dtype=np.int64)


def shallower(parent: Int64Array, weights: Float64Array) -> Int64Array:
    """Return a tree that costs no more, in which vertices hang as high as the edges allow."""
    parent = parent.copy()
    for _ in range(len(parent)):
        depth = depths(parent)
        changed = False
        for vertex in np.argsort(-depth).tolist():
            above = int(parent[vertex])
            if above < 0:
                continue
            allowed = weights[:, vertex] <= weights[above, vertex] * _AS_CHEAP
            better = np.flatnonzero(allowed & (depth < depth[above]))
            if len(better):  # what is higher than the parent cannot hang below the vertex
                parent[vertex] = better[depth[better].argmin()]
                changed = True
                break_off = depth[vertex] - depth[parent[vertex]] - 1
                if break_off:
                    depth = depths(parent)
        if not changed:
            break
    return parent


def depths(parent: Int64Array) -> Int64Array:
    """Return how many edges lie between the root and each vertex."""
    depth = np.zeros(len(parent), dtype=np.int64)
    ancestor = parent.copy()
    while (ancestor >= 0).any():
        depth += ancestor >= 0
        ancestor = np.where(ancestor >= 0, parent[ancestor], -1)
    return depth
