"""Hierarchical: reduce inside each node first, so that little is left for the network between them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from collectives.algorithms.ring import ring, ring_all_gather, ring_reduce_scatter
from collectives.algorithms.shared.embedding import Group, each_between, embed, scratch_for, side_by_side
from collectives.algorithms.shared.halves import Halves
from collectives.errors import NotSupportedError
from collectives.program import Algorithm, Cost, Send, Step, algorithm

RING = Halves(ring_reduce_scatter, ring_all_gather)


@dataclass(frozen=True, slots=True)
class _Nodes:
    """The division of ranks into *count* nodes of *size*, of which the last may have fewer."""

    size: int
    last_size: int
    count: int

    @classmethod
    def of(cls, world_size: int, ranks_per_node: int) -> _Nodes:
        if ranks_per_node < 1:
            raise NotSupportedError(f"hierarchical: ranks_per_node must be at least 1, got {ranks_per_node}")
        size = min(ranks_per_node, world_size)
        count = -(-world_size // size)
        return cls(size, world_size - (count - 1) * size, count)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes that there are, the larger one first."""
        return (self.size,) if self.last_size == self.size else (self.size, self.last_size)

    def __str__(self) -> str:
        last = f", the last of {self.last_size}" if len(self.sizes) == 2 else ""
        return f"{self.count} node{'' if self.count == 1 else 's'} of {self.size}{last}"


@dataclass(frozen=True, slots=True)
class _Column:
    """One rank of each node, as `embedding.Subgroup`: at *place*, but in the last at *last_place*."""

    index: int
    nodes: _Nodes
    place: int
    last_place: int

    @property
    def size(self) -> int:
        return self.nodes.count

    def rank_of(self, index: int) -> int:
        in_last = index == self.nodes.count - 1
        return index * self.nodes.size + self.place + in_last * (self.last_place - self.place)


def _parts(inner: Halves, outer: Algorithm) -> tuple[Algorithm, Algorithm, Algorithm]:
    """Return reduce-scatter, all-reduce and all-gather."""
    if not isinstance(inner, Halves) or not isinstance(outer, Algorithm):
        raise TypeError(
            f"hierarchical is made of algorithms, got inner={inner!r} and outer={outer!r}; to choose them by "
            "name: resolve_algorithm('hierarchical:inner=NAME,outer=NAME')"
        )
    return inner.reduce_scatter, outer, inner.all_gather


def _num_chunks(world_size: int, *, ranks_per_node: int, inner: Halves, outer: Algorithm) -> int:
    nodes = _Nodes.of(world_size, ranks_per_node)
    scatter, reduce, gather = _parts(inner, outer)
    inside = [part.num_chunks(size) for part in (scatter, gather) for size in nodes.sizes]
    return math.lcm(*inside, math.lcm(*nodes.sizes) * reduce.num_chunks(nodes.count))


def _num_scratch_chunks(world_size: int, *, ranks_per_node: int, inner: Halves, outer: Algorithm) -> int:
    nodes = _Nodes.of(world_size, ranks_per_node)
    scatter, reduce, gather = _parts(inner, outer)
    chunks = _num_chunks(world_size, ranks_per_node=ranks_per_node, inner=inner, outer=outer)
    inside = [scratch_for(part, size, chunks) for part in (scatter, gather) for size in nodes.sizes]
    return max(*inside, scratch_for(reduce, nodes.count, chunks))


def _cost(world_size: int, *, ranks_per_node: int, inner: Halves, outer: Algorithm) -> Cost | None:
    nodes = _Nodes.of(world_size, ranks_per_node)
    scatter, reduce, gather = _parts(inner, outer)
    between = _sent(reduce, nodes.count)
    sent_between = [between] if len(nodes.sizes) == 1 else [between[:-1], between[-1:]]

    num_steps, most_sent = 0, Fraction(0)
    for size, outside in zip(nodes.sizes, sent_between, strict=True):
        down, up = _sent(scatter, size), _sent(gather, size)
        if len(nodes.sizes) == 2 and not {*down} == {*up} == {Fraction(size - 1, size)}:
            return None  # who is busiest, and last, depends on where in their nodes ranks are
        inside = max(scattered + gathered for scattered, gathered in zip(down, up, strict=True))
        num_steps = max(num_steps, _num_steps(scatter, size) + _num_steps(gather, size))
        most_sent = max(most_sent, inside + max(outside) / size)
    return Cost(num_steps + _num_steps(reduce, nodes.count), most_sent)


def _num_steps(part: Algorithm, world_size: int) -> int:
    cost = part.cost(world_size)
    if cost is None:
        raise NotSupportedError(f"hierarchical is made of algorithms that declare a cost; {part} does not")
    return cost.num_steps


def _sent(part: Algorithm, world_size: int) -> list[Fraction]:
    """Return how many buffers each rank sends."""
    if type(world_size) is int and part.array_form:  # it is a symbol in proofs for every number of ranks
        return _sent_at_once(part, world_size)
    chunks_sent = [
        sum(send.num_chunks for send in _sends(part.steps(rank, world_size))) for rank in range(world_size)
    ]
    return [Fraction(chunks, part.num_chunks(world_size)) for chunks in chunks_sent]


def _sent_at_once(part: Algorithm, world_size: int) -> list[Fraction]:
    """Return how many buffers each rank sends, from the array form of *part*."""
    chunks_sent = np.zeros(world_size, dtype=np.int64)
    for send in _sends(part.steps_over_ranks(world_size)):
        chunks_sent += send.num_chunks if send.when is True else np.where(send.when, send.num_chunks, 0)
    num_chunks = part.num_chunks(world_size)
    return [Fraction(chunks, num_chunks) for chunks in chunks_sent.tolist()]


def _sends(steps: Iterator[Step]) -> Iterator[Send]:
    return (operation for step in steps for operation in step if isinstance(operation, Send))


@algorithm(
    array_form=True,
    num_chunks=_num_chunks,
    scratch_chunks=_num_scratch_chunks,
    cost=_cost,
    ranges={"ranks_per_node": range(1, (1 << 20) + 1)},
)
def hierarchical(
    rank: int, world_size: int, *, ranks_per_node: int = 8, inner: Halves = RING, outer: Algorithm = ring
) -> Iterator[Step]:
    """Yield this rank's steps of a hierarchical all-reduce.

    Each node of g ranks reduce-scatters, ranks with the same place in their node all-reduce what
    they hold, and each node all-gathers.  Each rank carries only 1/g of the buffer through the network
    between nodes.  With rings: ``2(g-1) + 2(⌈p/g⌉-1)`` steps, and ``2(p-1)/p`` buffers sent.

    A last node of only h ranks divides the buffer into h shares, each of which overlaps with several
    of the other nodes'.  A rank all-reduces each overlap with those that hold it too, all side by
    side: that takes no more steps, and with rings every rank still sends ``2(p'-1)/p'`` buffers at
    most, where p' is ``g⌈p/g⌉``.

    Args:
        rank: consecutive ranks share a node.
        world_size: fewer ranks than a node has are one node.
        ranks_per_node: g; not given, it is that of the network simulated, or what ``torchrun`` says
            (``LOCAL_WORLD_SIZE``).  Proofs and drawings know no network and take the default.
        inner: the reduce-scatter and all-gather inside nodes; in text, their name.
        outer: the all-reduce between nodes; in text, its name.

    Source: Cho et al., "BlueConnect: decomposing all-reduce for deep learning on heterogeneous
    network hierarchy", MLSys 2019; Horovod's ``HOROVOD_HIERARCHICAL_ALLREDUCE``.

    Raises:
        NotSupportedError: *inner* or *outer* refuses the size of a node or the number of nodes.
        TypeError: *inner* or *outer* is a name; `collectives.resolve_algorithm` takes those.
    """
    nodes = _Nodes.of(world_size, ranks_per_node)
    scatter, reduce, gather = _parts(inner, outer)
    chunks = _num_chunks(world_size, ranks_per_node=ranks_per_node, inner=inner, outer=outer)
    try:
        yield from _inside(scatter, nodes, rank, chunks)
        yield from _between(reduce, nodes, rank, chunks)
        yield from _inside(gather, nodes, rank, chunks)
    except NotSupportedError as refusal:
        raise NotSupportedError(f"hierarchical on {nodes}: {refusal}") from None


def _inside(program: Algorithm, nodes: _Nodes, rank: int, chunks: int) -> Iterator[Step]:
    """Yield the steps of *program* among the ranks of each node, on the whole buffer."""
    # Full nodes and a smaller last one run the program for their own size; `when` says who is in which.
    node, place = rank // nodes.size, rank % nodes.size
    here = [True] if len(nodes.sizes) == 1 else [node < nodes.count - 1, node == nodes.count - 1]
    yield from side_by_side(
        *(
            embed(
                program,
                Group(place % size, size, rank - place),
                first_chunk=0,
                num_chunks=chunks,
                of=chunks,
                when=when,
            )
            for size, when in zip(nodes.sizes, here, strict=True)
        )
    )


def _between(program: Algorithm, nodes: _Nodes, rank: int, chunks: int) -> Iterator[Step]:
    """Yield the steps of *program* between nodes, on each overlap of a share with those elsewhere."""
    # A rank's share is [place · own, (place + 1) · own).  It overlaps with shares of the other size, from
    # full nodes or from the last: each overlap, [begin, end), lies in one share of every node, and all
    # ranks whose share holds it, one of each node, are the column that reduces it.  Where nodes are equal
    # there is one.
    node, place = rank // nodes.size, rank % nodes.size
    share, last_share = chunks // nodes.size, chunks // nodes.last_size
    in_last = node == nodes.count - 1
    own, others = share + in_last * (last_share - share), last_share + in_last * (share - last_share)
    overlaps = []
    for other, here in each_between(place * own // others, ((place + 1) * own - 1) // others + 1):
        column = _Column(node, nodes, place + in_last * (other - place), other + in_last * (place - other))
        begin: int = np.maximum(place * own, other * others)
        end: int = np.minimum((place + 1) * own, (other + 1) * others)
        overlaps.append(
            embed(program, column, first_chunk=begin, num_chunks=end - begin, of=chunks, when=here)
        )
    yield from side_by_side(*overlaps)
