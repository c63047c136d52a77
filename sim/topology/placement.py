"""Placement of the ranks of a job in a network.

``packed`` is rank r at place r.  ``round_robin`` deals ranks out to the nodes in turn, or, where a
node is one rank, to the switches that the ranks' first links lead to: the leaves of a tree.  On
one switch, a ring or a torus it is the same as packed.  A list says it for each rank.

A program that asks for nodes (``hierarchical``) takes them to be consecutive ranks.  Under
round_robin consecutive ranks are on different nodes, so it sees nodes of one rank each and runs
its outer part over all ranks: right, and as slow as that placement makes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np

from sim.errors import SimulationError, TopologyError
from sim.topology.topology import Topology
from sim.units import Int64Array, is_whole

Placement: TypeAlias = Literal["packed", "round_robin"] | Sequence[int]


def places(placement: Placement, topology: Topology) -> tuple[int, ...]:
    """Return the place in *topology* of each rank of a job.

    Args:
        placement: ``packed`` or ``round_robin``: all places take part.  Or a distinct place for each
            rank: as many take part as it has.
        topology: the network.

    Raises:
        TopologyError: an unknown name, no place at all, a place that *topology* does not have, or
            one that is given twice.
    """
    if isinstance(placement, str):
        if placement == "packed":
            return tuple(range(topology.num_ranks))
        if placement == "round_robin":
            return tuple(_round_robin(neighbourhoods(topology)).tolist())
        raise TopologyError(
            f"placement: expected 'packed', 'round_robin' or a list of places, got {placement!r}"
        )
    return _checked(placement, topology)


def neighbourhoods(topology: Topology) -> Int64Array:
    """Return a number for the node, or else the leaf switch, of each place; equal for neighbours.

    Shape (num_ranks,).  Places that hang on no switch are all taken for neighbours.
    """
    if topology.ranks_per_node > 1:
        return np.arange(topology.num_ranks) // topology.ranks_per_node
    wiring = topology.routing.wiring()
    tails, first = np.unique(wiring.tail, return_index=True)
    beside = np.full(len(wiring.names), -1, dtype=np.int64)
    beside[tails] = wiring.head[first]
    near = beside[: topology.num_ranks]
    return np.where(near < topology.num_ranks, -1, near)


def _round_robin(groups: Int64Array) -> Int64Array:
    """Return the first place of every group, then the second of every group, and so on."""
    _, group, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    by_group = np.argsort(group, kind="stable")
    turn = np.empty_like(group)
    turn[by_group] = np.arange(len(groups)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    order: Int64Array = np.lexsort((group, turn))
    return order


def check_place(
    place: object, topology: Topology, what: str, refusal: type[SimulationError] = TopologyError
) -> int:
    """Return *place* as an int if *topology* has it.

    Raises:
        SimulationError: *refusal*, if it has not; names *what*, the places that there are and *place*.
    """
    if not is_whole(place) or not 0 <= place < topology.num_ranks:
        raise refusal(f"{what}: {topology.name} has places 0 to {topology.num_ranks - 1}, got {place!r}")
    return int(place)


def _checked(placement: Sequence[int], topology: Topology) -> tuple[int, ...]:
    rank_at: dict[int, int] = {}
    for rank, given in enumerate(placement):
        place = check_place(given, topology, f"placement of rank {rank}")
        if place in rank_at:
            raise TopologyError(
                f"placement: ranks {rank_at[place]} and {rank} are both at place {place}; give each its own"
            )
        rank_at[place] = rank
    if not rank_at:
        raise TopologyError("placement: expected a place for each rank, got none")
    return tuple(rank_at)
