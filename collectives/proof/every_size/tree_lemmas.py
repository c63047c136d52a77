"""Lemmas on in-order binary trees, for any number of positions that fits into 30 bits.

A program's own rule for the position above another is run on bit vectors.  What lies below position x are
the positions from `_lowest` to `_highest`, which shows what programs need to know of a tree:
who is below whom, that everybody is below one position, and how deep a tree can be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import z3

from collectives.proof.every_size.solving import contradict_as_bits
from collectives.proof.every_size.symbols import NotProvedError

WIDTH = 32
"""Bits of a position; two are kept so that nothing overflows."""


Rule = Callable[[Any, Any], Any]
"""Of two bit vectors: a position or a number, and how many there are."""


def prove_trees(above: Rule, second: Rule) -> None:
    """Prove of the rules of a program both what `prove_tree` and `prove_two_trees` do.

    Raises:
        NotProvedError: something is refuted, or not decided in time.
    """
    prove_tree(above)
    prove_two_trees(above, second)


def prove_tree(above: Rule) -> None:
    """Prove that *above*, of a position and their number, makes a binary tree of least depth.

    - Positions lead to others from 1 to their number, or to 0: one alone does, and all others are below it.
    - A position has at most one other directly below it on either side. What is below those is what is below
      the position, apart from itself, and nothing is below both.
    - The lowest set bit at least doubles from a position to the one above: so from a position of n, at most
      ``⌊log2 n⌋`` others are above.

    Raises:
        NotProvedError: one of these is refuted, or not decided in time.
    """
    x, y, q, n = z3.BitVecs("x y q n", WIDTH)
    up = above(x, n)
    alike = [up >= 1, above(y, n) == up, (x < up) == (y < up)]
    left = x - z3.LShR(_bit(x), 1)
    right = x + _power_up_to(_smaller(z3.LShR(_bit(x), 1), n - x))

    def is_child(y: Any) -> Any:
        return z3.And(y >= 1, y <= n, above(y, n) == x, _below(y, q, n))

    inside = z3.And(_lowest(x) >= _lowest(up), _highest(x, n) <= _highest(up, n))
    apart = z3.Or(_highest(x, n) < up, _lowest(x) > up)
    obligations = {
        "a position leads to another": (z3.And(up != x, up >= 0, up <= n), [x]),
        "one position leads to 0": (z3.Implies(z3.And(up == 0, above(y, n) == 0), x == y), [x, y]),
        "all are below that": (z3.Implies(up == 0, _below(x, q, n)), [x, q]),
        "one child on either side": (z3.Implies(z3.And(*alike), x == y), [x, y]),
        "below a child is below the parent": (z3.Implies(up >= 1, z3.And(inside, apart)), [x]),
        "in front is the left child": (z3.Implies(z3.And(_below(x, q, n), q < x), is_child(left)), [x, q]),
        "behind is the right child": (z3.Implies(z3.And(_below(x, q, n), q > x), is_child(right)), [x, q]),
        "the lowest bit doubles": (z3.Implies(up >= 1, _bit(up) >= 2 * _bit(x)), [x]),
    }
    for what, (claim, positions) in obligations.items():
        _prove(what, claim, [n >= 1, *(z3.And(at >= 1, at <= n) for at in positions)], n)


def prove_two_trees(above: Rule, second: Rule) -> None:
    """Prove what two such trees say of the same ranks, in order in one and at *second* in the other.

    - No two ranks are at one position of the second tree, and each is at one.
    - Nothing is directly below an odd position, and each rank has an odd one in one of the trees: so it has
      children in one tree at most.
    - Of the ranks from 0 on, rank 1 has rank 0 below it in the first tree, rank 2 if there are three, and
      somebody above it if there are four; in the second tree somebody is above it.
    - Somebody is directly below what stands above a tree.

    Raises:
        NotProvedError: one of these is refuted, or not decided in time.
    """
    x, n, number, other = z3.BitVecs("x n number other", WIDTH)
    there = [n >= 1, x >= 1, x <= n, *(z3.And(own >= 0, own < n) for own in (number, other))]
    at, there_too = second(number, n), second(other, n)
    one, two, three = (z3.BitVecVal(position, WIDTH) for position in (1, 2, 3))
    of_rank_1 = z3.And(
        above(one, n) == two,
        z3.Implies(n >= 3, above(three, n) == two),
        z3.Implies(n >= 4, above(two, n) >= 1),
        above(second(one, n), n) >= 1,
    )
    _prove("a position of the second tree", z3.And(at >= 1, at <= n), there, n)
    _prove("a position for each rank", z3.Implies(at == there_too, number == other), there, n)
    _prove("nothing is below an odd position", above(x, n) & 1 == 0, there, n)
    _prove("one of both positions is odd", z3.Or((number + 1) & 1 == 1, at & 1 == 1), there, n)
    _prove("what is around rank 1", of_rank_1, [n >= 2], n)
    _prove("somebody is on top", above(_power_up_to(n), n) == 0, [n >= 1], n)


def _prove(what: str, claim: Any, facts: list[Any], count: Any) -> None:
    if not contradict_as_bits([count < 1 << (WIDTH - 2), *facts, z3.Not(claim)]):
        raise NotProvedError(f"not proved of its tree: {what}")


def _bit(position: Any) -> Any:
    return position & -position


def _lowest(position: Any) -> Any:
    return position - _bit(position) + 1


def _highest(position: Any, count: Any) -> Any:
    return _smaller(position + _bit(position) - 1, count)


def _below(position: Any, other: Any, count: Any) -> Any:
    return z3.And(other >= _lowest(position), other <= _highest(position, count))


def _smaller(one: Any, other: Any) -> Any:
    return z3.If(one < other, one, other)


def _power_up_to(number: Any) -> Any:
    """Return the largest power of two that is not above *number*, or 0."""
    filled = number
    for shift in (1, 2, 4, 8, 16):
        filled = filled | z3.LShR(filled, shift)
    return filled - z3.LShR(filled, 1)
