"""Lemmas on in-order binary trees, for any number of positions that fits into 30 bits.

A program's own rule for the position above another is run on bit vectors.  What lies below position x are
the positions from `_lowest` to `_highest`, which shows what programs need to know of a tree:
who is below whom, that everybody is below one position, and how deep a tree can be.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import z3

from collectives.proof.every_size.symbols import Assumptions, NotProvedError

WIDTH = 32
"""Bits of a position; two are kept so that nothing overflows."""


def prove_tree(above: Callable[[Any, Any], Any]) -> None:
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
        facts = [n >= 1, n < 1 << (WIDTH - 2), *(z3.And(at >= 1, at <= n) for at in positions)]
        if not Assumptions(*facts).imply(claim):
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
