"""Two binary trees over symbols: tables of parents and children that any number of ranks may have.

All that is known of the tables is that they are of trees (`Knowledge`); that those of the programs are, for
every number of ranks, is what `tree_lemmas` proves of the rule by which they are made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import z3

from collectives.algorithms.double_binary_tree import Tree, two_trees
from collectives.proof.every_size.comparison import compared_root
from collectives.proof.every_size.symbols import Number

NUMBER = z3.IntSort()


class SymbolicTree:
    """The symbols of one of the two trees.

    Attributes:
        head: the rank above all others.
        below: whether a rank is in the part of the tree of which another is the head, itself included.
    """

    def __init__(self, number: int) -> None:
        self.parent, self.left, self.right, self.depth = (
            z3.Function(f"{name}_{number}", NUMBER, NUMBER) for name in ("parent", "left", "right", "depth")
        )
        self.head = z3.Int(f"head_{number}")
        self.below = z3.Function(f"below_{number}", NUMBER, NUMBER, z3.BoolSort())

    def knowledge(self, num_ranks: Any, max_depth: Any) -> list[Any]:
        """Return what holds of any tree over *num_ranks* ranks, none deeper than *max_depth*."""
        r, q = z3.Ints("r q")
        parent, left, right, depth, below = self.parent, self.left, self.right, self.depth, self.below

        def every(claim: Any, *patterns: Any) -> Any:
            return z3.ForAll([r], z3.Implies(z3.And(r >= 0, r < num_ranks), claim), patterns=list(patterns))

        def every_two(claim: Any, *patterns: Any) -> Any:
            there = z3.And(r >= 0, r < num_ranks, q >= 0, q < num_ranks)
            return z3.ForAll([r, q], z3.Implies(there, claim), patterns=list(patterns))

        up = parent(r)
        beside = z3.Or(left(up) == r, right(up) == r)
        known = [
            every(z3.And(up >= -1, up < num_ranks, (up == -1) == (r == self.head)), up),
            every(z3.Implies(up >= 0, z3.And(beside, depth(r) == depth(up) + 1)), up),
            every(z3.And(depth(r) >= 0, depth(r) <= max_depth, (depth(r) == 0) == (up == -1)), depth(r)),
            every_two(z3.Implies(up == -1, below(r, q)), z3.MultiPattern(up, below(r, q))),
            every_two(
                z3.Implies(depth(r) == max_depth, below(r, q) == (q == r)),
                z3.MultiPattern(depth(r), below(r, q)),
            ),
            every(z3.Or(left(r) == -1, left(r) != right(r)), z3.MultiPattern(left(r), right(r))),
        ]
        for child in (left, right):
            own = z3.And(parent(child(r)) == r, depth(child(r)) == depth(r) + 1)
            known.append(every(z3.And(child(r) >= -1, child(r) < num_ranks), child(r)))
            known.append(every(z3.Implies(child(r) >= 0, own), child(r)))
            known.append(every(z3.Implies(child(r) >= 0, z3.Not(below(child(r), r))), child(r)))
        in_left = z3.And(left(r) >= 0, below(left(r), q))
        in_right = z3.And(right(r) >= 0, below(right(r), q))
        parts = z3.And(below(r, q) == z3.Or(q == r, in_left, in_right), z3.Not(z3.And(in_left, in_right)))
        known.append(every_two(parts, z3.MultiPattern(left(r), right(r), below(r, q))))
        known.append(every_two(parts, z3.MultiPattern(left(r), right(r), below(left(r), q))))
        known.append(every_two(parts, z3.MultiPattern(left(r), right(r), below(right(r), q))))
        return known


class Table:
    """A table of a tree, entered at a rank that is a symbol."""

    def __init__(self, entry: Callable[[Any], Any]) -> None:
        self.entry = entry

    def __getitem__(self, rank: Number) -> Number:
        return rank.of(self.entry(rank.term))


TREES = SymbolicTree(0), SymbolicTree(1)


def known_of_both(num_ranks: Any, root: Any = None) -> list[Any]:
    """Return what holds of both trees over the same ranks, as `tree_lemmas.prove_two_trees` proves it."""
    first, second = TREES
    r = z3.Int("r")
    inner = [z3.Or(tree.left(r) >= 0, tree.right(r) >= 0) for tree in TREES]
    there = z3.And(r >= 0, r < num_ranks, True if root is None else r != root)
    known = [z3.ForAll([r], z3.Implies(there, z3.Not(z3.And(*inner))))]
    if root is not None:
        return known + [z3.And(tree.left(root) == -1, tree.right(root) >= 0) for tree in TREES]
    return [
        *known,
        first.left(1) == 0,
        z3.Implies(num_ranks >= 3, first.right(1) == 2),
        z3.Implies(num_ranks >= 4, first.parent(1) >= 0),
        second.parent(1) >= 0,
    ]


def known_around(ranks: Iterable[Any], knowledge: list[Any]) -> list[Any]:
    """Return what *knowledge* says of each of *ranks* and of its children in both trees."""
    children = [child for tree in TREES for child in (tree.left, tree.right)]
    places = [place for rank in ranks for place in (rank, *(child(rank) for child in children))]
    of_any = [axiom for axiom in knowledge if z3.is_quantifier(axiom) and axiom.num_vars() == 1]
    known = [z3.substitute_vars(axiom.body(), place) for axiom in of_any for place in places]
    return known + [axiom for axiom in knowledge if not z3.is_quantifier(axiom)]


def symbolic_trees() -> tuple[Tree, Tree]:
    """Return both trees, as a program sees them."""
    first, second = (Tree(*map(Table, (own.parent, own.left, own.right, own.depth))) for own in TREES)
    return first, second


def tables(num_ranks: int, rooted: bool) -> dict[str, Callable[[int], int]]:
    """Return the tables of a number of ranks, by the names of their symbols."""
    found: dict[str, Callable[[int], int]] = {}
    root = compared_root(num_ranks) if rooted else None
    for own, tree in zip(TREES, two_trees(num_ranks, root), strict=True):
        columns = (
            (own.parent, tree.parent),
            (own.left, tree.left),
            (own.right, tree.right),
            (own.depth, tree.depth),
        )
        found |= {symbol.name(): table.tolist().__getitem__ for symbol, table in columns}
    return found
