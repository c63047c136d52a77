"""Double binary tree: two trees that between them use every rank's full bandwidth.

Half of the ranks of a binary tree are leaves, which send nothing on.  So there are two trees, each
of which carries half of the chunks, and no rank is an inner node of both: every rank works as hard
as any other, and the depth stays logarithmic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from collectives.algorithms.shared.segments import SEGMENTS
from collectives.program import Cost, Recv, RecvReduce, Send, Step, algorithm


@dataclass(frozen=True, slots=True, eq=False)
class Tree:
    """A binary tree over ranks; entry r of each array says of rank r, -1: there is none."""

    parent: Any
    left: Any
    right: Any
    depth: Any

    def up(self, rank: int, segment: int, first: int, segments: int) -> Step:
        """Return a step in which *rank* sends *segment* to its parent and takes in the next one."""
        there_is_next = (segment + 1 >= 0) & (segment + 1 < segments)
        parent, left, right = self.parent[rank], self.left[rank], self.right[rank]
        return (
            Send(parent, first + segment, when=(parent >= 0) & (segment >= 0) & (segment < segments)),
            RecvReduce(left, first + segment + 1, when=(left >= 0) & there_is_next),
            RecvReduce(right, first + segment + 1, when=(right >= 0) & there_is_next),
        )

    def down(self, rank: int, segment: int, first: int, segments: int) -> Step:
        """Return a step in which *rank* sends *segment* to its children and takes in the next one."""
        there_is_one = (segment >= 0) & (segment < segments)
        there_is_next = (segment + 1 >= 0) & (segment + 1 < segments)
        parent, left, right = self.parent[rank], self.left[rank], self.right[rank]
        return (
            Send(left, first + segment, when=(left >= 0) & there_is_one),
            Send(right, first + segment, when=(right >= 0) & there_is_one),
            Recv(parent, first + segment + 1, when=(parent >= 0) & there_is_next),
        )


@lru_cache(maxsize=16)
def two_trees(world_size: int, root: int | None = None) -> tuple[Tree, Tree]:
    """Return two trees over all ranks, no rank but *root* an inner node of both.

    With a root, it stands above both trees, which the other ranks make up.  In the first tree
    the ranks are in order, every other one a leaf; the second is its mirror image if their
    number is even, and else the same tree shifted by one rank.
    """
    if root is None:
        ranks = np.arange(world_size)
    else:
        ranks = (root + np.arange(1, world_size)) % world_size
    other = np.empty_like(ranks)
    other[position_in_second(np.arange(len(ranks)), len(ranks)) - 1] = ranks
    return _in_order(ranks, world_size, root), _in_order(other, world_size, root)


def position_in_second(number: Any, count: int) -> Any:
    """Return the position in the second tree, from 1 on, of the rank of this *number*, from 0 on, of *count*.

    In the first tree that is ``number + 1``, so one of both is odd, and what is at an odd position is a leaf.
    """
    shifted = np.where(number + 1 == count, 1, number + 2)
    return np.where(count & 1 == 0, count - number, shifted)


def position_above(position: Any, count: int) -> Any:
    """Return the position of the parent in a tree over positions 1 to *count*; 0 is above the tree.

    A position with k trailing zero bits is k levels above the leaves.  Its parent is found by
    moving its lowest set bit up by one; where no rank has that position, by clearing the bit.
    """
    # For position 6 = 0b110 the lowest set bit is 0b010, and moved up by one it gives the parent 0b100;
    # had the tree only 5 positions, 5 = 0b101 would look for 0b110, find nobody, and clear its bit: 0b100
    # again.  Clearing the last bit there is leads to 0, where the root stands, or nobody.
    bit = position & -position
    above = (position ^ bit) | (bit << 1)
    return np.where(above > count, position ^ bit, above)


def _in_order(ranks: Any, world_size: int, root: int | None) -> Tree:
    """Return the tree whose in-order sequence is *ranks*, at positions 1, 2 …; *root* is at 0."""
    position = np.arange(1, len(ranks) + 1)
    above = position_above(position, len(ranks))
    rank_at = np.concatenate([[-1 if root is None else root], ranks])
    depth, left, right, parent = (np.full(world_size, fill) for fill in (0, -1, -1, -1))
    parent[ranks] = rank_at[above]

    # A child in front of its parent is the left one.  Each parent has at most one on either side, so
    # turning "my parent is" round into "my child is" overwrites nothing.
    for is_child, child in ((above > position, left), (above < position, right)):
        has_parent = is_child & (parent[ranks] >= 0)
        child[parent[ranks[has_parent]]] = ranks[has_parent]

    # All ranks climb at once, one level per turn; the turns that a rank takes are its depth.
    ancestor = parent
    while (ancestor >= 0).any():
        depth += ancestor >= 0
        ancestor = np.where(ancestor >= 0, parent[ancestor], -1)
    return Tree(parent, left, right, depth)


def _height(world_size: int) -> int:
    """Return the height of a tree over *world_size* ranks and no root above them."""
    return world_size.bit_length() - 1


def _rooted_cost(world_size: int, *, segments: int) -> Cost:
    if world_size == 1:
        return Cost(0, Fraction(0))
    return Cost(_height(world_size - 1) + segments, Fraction(1))


def _all_reduce_cost(world_size: int, *, segments: int) -> Cost:
    if world_size == 1:
        return Cost(0, Fraction(0))
    return Cost(2 * _height(world_size) + segments - 1, Fraction(min(world_size, 4), 2))


def _chunks(world_size: int, *, segments: int) -> int:
    return 2 * segments


@algorithm(
    collective="broadcast",
    name="double_binary_tree",
    num_chunks=_chunks,
    array_form=True,
    cost=_rooted_cost,
    ranges=SEGMENTS,
)
def double_binary_tree_broadcast(
    rank: int, world_size: int, *, root: int = 0, segments: int = 4
) -> Iterator[Step]:
    """Yield this rank's steps of a pipelined broadcast from *root* down both trees.

    Each tree carries half of the buffer in s *segments*: ``⌊log2(p-1)⌋+s`` steps, in each of
    which a rank sends at most two messages of ``n/2s`` bytes; no rank sends more than n in all.

    Source: as `double_binary_tree`.
    """
    # At step t a rank at depth d hands on segment t - d: the root begins with segment 0, each level a
    # step after the one above.  `Tree.down` leaves out what is no segment yet, or no longer.
    trees = two_trees(world_size, root)
    for step in range(_rooted_cost(world_size, segments=segments).num_steps):
        yield tuple(
            operation
            for number, tree in enumerate(trees)
            for operation in tree.down(rank, step - tree.depth[rank], number * segments, segments)
        )


@algorithm(
    collective="reduce",
    name="double_binary_tree",
    num_chunks=_chunks,
    array_form=True,
    cost=_rooted_cost,
    ranges=SEGMENTS,
)
def double_binary_tree_reduce(
    rank: int, world_size: int, *, root: int = 0, segments: int = 4
) -> Iterator[Step]:
    """Yield this rank's steps of a pipelined reduce to *root* up both trees.

    The broadcast backwards: ``⌊log2(p-1)⌋+s`` steps for s *segments*; every rank sends n at most.

    Source: as `double_binary_tree`.
    """
    # The deepest ranks, at depth *height*, send segment 0 in the first step; a rank that is k levels
    # above them sends it k steps later, so at step t a rank at depth d sends segment t - (height - d).
    trees = two_trees(world_size, root)
    cost = _rooted_cost(world_size, segments=segments)
    height = cost.num_steps - segments + 1
    for step in range(cost.num_steps):
        yield tuple(
            operation
            for number, tree in enumerate(trees)
            for operation in tree.up(rank, step - height + tree.depth[rank], number * segments, segments)
        )


@algorithm(num_chunks=_chunks, array_form=True, cost=_all_reduce_cost, ranges=SEGMENTS)
def double_binary_tree(rank: int, world_size: int, *, segments: int = 4) -> Iterator[Step]:
    """Yield this rank's steps of a pipelined all-reduce: up both trees, and down again.

    Each tree carries half of the buffer in s *segments*, which turn back at its root one by one:
    ``2⌊log2 p⌋+s-1`` steps, in each of which a rank sends at most four messages of ``n/2s``
    bytes; no rank sends more than 2n in all.  As in NCCL, a rank sends to both its children
    at once; the paper has them take turns.

    Source: Sanders, Speck and Träff, "Two-tree algorithms for full bandwidth broadcast,
    reduction and scan", Parallel Computing 35(12), 2009; Jeaugey, "Massively scale your deep
    learning training with NCCL 2.4", NVIDIA, 2019.
    """
    # Segment s reaches the top of its tree at step *height* + s, and turns back there: on its way up it
    # passes depth d at step height - d + s, on its way down at step height + d + s.
    trees = two_trees(world_size)
    height = _height(world_size)
    for step in range(_all_reduce_cost(world_size, segments=segments).num_steps):
        yield tuple(
            operation
            for number, tree in enumerate(trees)
            for operation in (
                *tree.up(rank, step - height + tree.depth[rank], number * segments, segments),
                *tree.down(rank, step - height - tree.depth[rank], number * segments, segments),
            )
        )
