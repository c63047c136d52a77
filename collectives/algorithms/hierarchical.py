"""Hierarchical: reduce inside each node first, so that little is left for the network between them."""

from __future__ import annotations

import math
from collections.abc import Iterator

from collectives.algorithms.embedding import Group, embed
from collectives.errors import NotSupportedError
from collectives.program import Algorithm, Cost, Step, algorithm


def _num_nodes(world_size: int, ranks_per_node: int) -> tuple[int, int]:
    """Return the size of a node, and how many nodes there are."""
    if ranks_per_node < 1:
        raise NotSupportedError(f"hierarchical: ranks_per_node must be at least 1, got {ranks_per_node}")
    size = min(ranks_per_node, world_size)
    if world_size % size:
        fitting = max(fit for fit in range(1, size) if world_size % fit == 0)
        raise NotSupportedError(
            f"hierarchical needs full nodes, got {world_size} ranks in nodes of {size}; use "
            f"ranks_per_node={fitting}, which divides them, or ring, which takes any number"
        )
    return size, world_size // size


def _parts(inner: str, outer: str) -> tuple[Algorithm, Algorithm, Algorithm]:
    """Return reduce-scatter, all-reduce and all-gather by these names."""
    from collectives.resolve import resolve_algorithm  # it knows all algorithms, so this one too

    return (
        resolve_algorithm(inner, "reduce_scatter"),
        resolve_algorithm(outer, "all_reduce"),
        resolve_algorithm(inner, "all_gather"),
    )


def _num_chunks(world_size: int, *, ranks_per_node: int, inner: str, outer: str) -> int:
    size, nodes = _num_nodes(world_size, ranks_per_node)
    scatter, reduce, gather = _parts(inner, outer)
    return math.lcm(scatter.num_chunks(size), gather.num_chunks(size), size * reduce.num_chunks(nodes))


def _cost(world_size: int, *, ranks_per_node: int, inner: str, outer: str) -> Cost:
    size, nodes = _num_nodes(world_size, ranks_per_node)
    scatter, reduce, gather = _parts(inner, outer)
    inside, between, back = _declared(scatter, size), _declared(reduce, nodes), _declared(gather, size)
    return Cost(
        inside.num_steps + between.num_steps + back.num_steps,
        inside.max_bytes_sent_fraction
        + between.max_bytes_sent_fraction / size
        + back.max_bytes_sent_fraction,
    )


def _declared(part: Algorithm, world_size: int) -> Cost:
    cost = part.cost(world_size)
    if cost is None:
        raise NotSupportedError(f"hierarchical is made of algorithms that declare a cost; {part} does not")
    return cost


@algorithm(array_form=True, num_chunks=_num_chunks, cost=_cost)
def hierarchical(
    rank: int, world_size: int, *, ranks_per_node: int = 8, inner: str = "ring", outer: str = "ring"
) -> Iterator[Step]:
    """Yield this rank's steps of a hierarchical all-reduce.

    Each node of g ranks reduce-scatters, ranks with the same place in their node all-reduce what
    they hold, and each node all-gathers.  Each rank carries only 1/g of the buffer through the network
    between nodes.  With rings: ``2(g-1) + 2(p/g-1)`` steps, and ``2(p-1)/p`` buffers sent.

    Args:
        rank: consecutive ranks share a node.
        world_size: a multiple of the ranks per node; fewer ranks are one node.
        ranks_per_node: g.
        inner: name of the reduce-scatter and all-gather inside nodes.
        outer: name of the all-reduce between nodes.

    Source: Cho et al., "BlueConnect: decomposing all-reduce for deep learning on heterogeneous
    network hierarchy", MLSys 2019; Horovod's ``HOROVOD_HIERARCHICAL_ALLREDUCE``.

    Raises:
        NotSupportedError: the last node would be smaller, or *inner* or *outer* refuses.
    """
    size, nodes = _num_nodes(world_size, ranks_per_node)
    scatter, reduce, gather = _parts(inner, outer)
    chunks = _num_chunks(world_size, ranks_per_node=ranks_per_node, inner=inner, outer=outer)
    place = rank % size
    node = Group(place, size, rank - place)
    peers = Group(rank // size, nodes, place, size)
    share = chunks // size
    yield from embed(scatter, node, first_chunk=0, num_chunks=chunks)
    yield from embed(reduce, peers, first_chunk=place * share, num_chunks=share)
    yield from embed(gather, node, first_chunk=0, num_chunks=chunks)
