"""Hierarchical all-to-all: to the rank of one's node that has the right rail first, then along that rail."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import gcd

from collectives.algorithms.direct import direct_all_to_all
from collectives.algorithms.shared.embedding import Group, embed
from collectives.program import Copy, Cost, Step, algorithm


def _cost(world_size: int, *, ranks_per_node: int) -> Cost:
    inside = gcd(world_size, ranks_per_node)
    nodes = world_size // inside
    return Cost((inside > 1) + (nodes > 1), Fraction(inside - 1, inside) + Fraction(nodes - 1, nodes))


@algorithm(
    name="hierarchical",
    collective="all_to_all",
    array_form=True,
    cost=_cost,
    ranges={"ranks_per_node": range(1, (1 << 20) + 1)},
)
def hierarchical_all_to_all(rank: int, world_size: int, *, ranks_per_node: int = 8) -> Iterator[Step]:
    """Yield this rank's steps of a hierarchical all-to-all.

    Parts for the same place of every node go to the rank of that place in one's own node, in one message; and
    then, with what others of the node have for the same ranks, along one rail: of g ranks a node, a rank
    sends ``g-1 + p/g-1`` messages where a direct exchange sends ``p-1``.  Two steps, each behind copies that
    pack what goes to one rank, and up to twice the bytes, of which ``(g-1)/g·n`` stay inside nodes.

    Args:
        rank: consecutive ranks share a node.
        world_size: where nodes do not divide it, the largest part of a node that does is taken for one.
        ranks_per_node: g; not given, it is that of the network simulated, or what ``torchrun`` says
            (``LOCAL_WORLD_SIZE``).  Proofs and drawings know no network and take the default.

    Source: Rajbhandari et al., "DeepSpeed-MoE", ICML 2022, section 5.2; NCCL's PXN; DeepEP's kernels between
    nodes go along the rail first.
    """
    inside = gcd(world_size, ranks_per_node)
    nodes = world_size // inside
    node, place = rank // inside, rank % inside
    own_node, rail = Group(place, inside, rank - place), Group(node, nodes, place, inside)
    for rows, columns, group in ((nodes, inside, own_node), (inside, nodes, rail)):
        yield _transposed(rows, columns)
        yield from embed(direct_all_to_all, group, first_chunk=0, num_chunks=world_size, of=world_size)


def _transposed(rows: int, columns: int) -> Step:
    """Return copies that pack what goes to one rank: the buffer as a matrix of parts, transposed."""
    places = (
        (row * columns + column, column * rows + row) for row in range(rows) for column in range(columns)
    )
    return tuple(Copy(before, after) for before, after in places if before != after)
