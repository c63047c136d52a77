"""Rooted collectives along any tree whose subtrees are ranges of ranks.

Ranks stand in a circle, at positions that count from where the tree's range begins.  A tree is made by
splitting: the range of all positions, of which the root is the head, falls into two, and its head hands
on to the head of the other part; then each part is split likewise, until all are of one rank.  How
a range is split is all that tells one tree from another, the `Shape`.  What hands on goes from the root
to the leaves, level by level; what collects goes the other way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from collectives.algorithms.shared.doubling import num_doublings
from collectives.program import Cost, Recv, RecvReduce, Send, Step


class Subtree(NamedTuple):
    """A range of positions, and the one among them that talks to the rest of the tree."""

    first: int
    length: int
    head: int


@dataclass(frozen=True, slots=True)
class Shape:
    """What makes a tree.

    Attributes:
        root: the position of the root, given the number of ranks.
        split_off: the part that is split off from another one at a level, counted from the leaves; of
            length 0 if there is nothing to split.  At level k no part is longer than ``2^(k+1)``.
    """

    root: Callable[[int], int]
    split_off: Callable[[Subtree, int], Subtree]


@dataclass(frozen=True, slots=True)
class Branch:
    """One level of a tree, as one rank sees it, or each rank in array form.

    Attributes:
        parent: the rank that is the head of the part that is split.
        child: the rank that is the head of the part that is split off, its subtree.
        is_parent: whether this rank is that parent, and there is a child.
        is_child: whether this rank is that child.
        first: the first rank of the subtree.
        length: number of ranks of the subtree, which may wrap round the end.
    """

    parent: int
    child: int
    is_parent: bool
    is_child: bool
    first: int
    length: int


def choose(condition: bool, yes: int, no: int) -> int:
    """Return *yes* or *no*, in arithmetic that serves an int and an array alike."""
    return no + condition * (yes - no)


def branches(shape: Shape, rank: int, world_size: int, root: int) -> list[Branch]:
    """Return the levels of the tree of *shape* below *root*, from the root to the leaves."""
    # Every rank follows the part that it is in.  At each level that part falls into two, *other* and
    # *rest*; the head of the rest is the parent of the head of the other.  A rank is one of the two, or
    # only learns in which half to go on.  Array form knows no ``if``, so `choose` says it in arithmetic.
    turn = root - shape.root(world_size)
    position = (rank - turn) % world_size
    part = Subtree(0, world_size, shape.root(world_size))
    found = []
    for level in reversed(range(num_doublings(world_size))):
        other = shape.split_off(part, level)
        found.append(
            Branch(
                parent=(part.head + turn) % world_size,
                child=(other.head + turn) % world_size,
                is_parent=(position == part.head) & (other.length > 0),
                is_child=(position == other.head) & (other.length > 0),
                first=(other.first + turn) % world_size,
                length=other.length,
            )
        )

        # The other part is split off at either end; at the front, the rest begins behind it.
        rest_first = part.first + (other.first == part.first) * other.length
        rest = Subtree(rest_first, part.length - other.length, part.head)
        in_other = (position >= other.first) & (position < other.first + other.length)
        part = Subtree(*(choose(in_other, *ends) for ends in zip(other, rest, strict=True)))
    return found


def broadcast_cost(world_size: int) -> Cost:
    """Return the cost of a broadcast in which the root sends at every level."""
    return Cost(num_doublings(world_size), Fraction(num_doublings(world_size)))


def reduce_cost(world_size: int) -> Cost:
    """Return the cost of a reduce in which the root receives at every level."""
    return Cost(num_doublings(world_size), Fraction(min(world_size - 1, 1)))


def scatter_cost(world_size: int) -> Cost:
    """Return the cost of a scatter in which the root sends at every level."""
    return Cost(num_doublings(world_size), Fraction(world_size - 1, world_size))


def broadcast(tree: Iterable[Branch]) -> Iterator[Step]:
    """Yield the steps of a rank that hands the buffer on to its children, the largest subtree first."""
    for branch in tree:
        yield (
            Send(branch.child, chunk=0, when=branch.is_parent),
            Recv(branch.parent, chunk=0, when=branch.is_child),
        )


def reduce(tree: Iterable[Branch]) -> Iterator[Step]:
    """Yield the steps of a rank that reduces what its children send, and sends it to its parent."""
    for branch in tree:
        yield (
            Send(branch.parent, chunk=0, when=branch.is_child),
            RecvReduce(branch.child, chunk=0, when=branch.is_parent),
        )


def gather(tree: Iterable[Branch], world_size: int) -> Iterator[Step]:
    """Yield the steps of a rank that sends the parts of its whole subtree to its parent."""
    for branch in tree:
        yield (
            *_parts(Send, branch.parent, branch, world_size, branch.is_child),
            *_parts(Recv, branch.child, branch, world_size, branch.is_parent),
        )


def scatter(tree: Iterable[Branch], world_size: int) -> Iterator[Step]:
    """Yield the steps of a rank that hands on to its children the parts of their subtrees."""
    for branch in tree:
        yield (
            *_parts(Send, branch.child, branch, world_size, branch.is_parent),
            *_parts(Recv, branch.parent, branch, world_size, branch.is_child),
        )


def _parts(kind: Any, peer: int, branch: Branch, world_size: int, when: bool) -> Step:
    """Return the operations on the parts of a subtree, which may wrap round the end of the buffer."""
    up_to_end: Any = np.minimum(branch.length, world_size - branch.first)
    wrapped = branch.length - up_to_end
    return (
        kind(peer, branch.first, up_to_end, when),
        kind(peer, 0, wrapped, when & (wrapped > 0)),
    )
