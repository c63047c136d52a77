"""Sums over a range in a declared cost, which stay symbols: what is known of each is what a turn adds.

A loop that sends in each turn no more than the sum adds in its own sends no more in all, whatever that is.
The bits that are set in the numbers below n are counted level by level, as a loop over distances meets them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import z3

from collectives.proof.every_size.loops import Loop
from collectives.proof.every_size.powers import HALVED, POWER, START, bit_length, is_in_upper_half
from collectives.proof.every_size.symbols import BIT_COUNT, Assumptions, term


@dataclass(frozen=True)
class Sum:
    """The sum of *added*, a term of the variable of *loop*, over all its values: *symbol*."""

    symbol: Any
    loop: Loop
    added: Any

    def added_in(self, turn: Any) -> Any:
        """Return what *turn* of a loop over the same values adds."""
        return z3.substitute(self.added, (self.loop.variable, turn))

    def goes_over(self, loop: Loop) -> Any:
        """Return that *loop* goes over the same values."""
        return z3.And(self.loop.start == loop.start, self.loop.stop == loop.stop)


def sum_over(loops: list[Loop], terms: list[Any], symbol: Any) -> Sum | None:
    """Return the sum of *terms*, which a program made in *loops*, or None where it is not known.

    Args:
        loops: the ranges over symbols that it went through.
        terms: of the variable of the range, and of its twin.
        symbol: what the sum is to be.
    """
    if len(loops) != 1 or len(terms) != 2 or type(loops[0]) is not Loop:
        return None
    (loop,), (one, twin) = loops, map(term, terms)
    if not z3.eq(z3.simplify(z3.substitute(one, (loop.variable, loop.twin))), z3.simplify(twin)):
        return None
    if not one.eq(BIT_COUNT(loop.variable)):
        return Sum(symbol, loop, one)
    num_levels = bit_length(loop.stop - 1)
    if num_levels is None or not z3.eq(loop.start, z3.IntVal(0)) or not _counts_bits():
        return None
    by_level = Loop(loop.variable, loop.twin, loop.start, num_levels)
    return Sum(symbol, by_level, bits_set_below(loop.stop, loop.variable))


def bits_set_below(number: Any, level: Any) -> Any:
    """Return how many numbers from 0 to below *number* have the bit at *level* set."""
    rest = number - START(number, level + 1) - POWER(level)
    return HALVED(number, level) + z3.If(rest > 0, rest, 0)


@cache
def _counts_bits() -> bool:
    """Return whether it is proved, by induction over the number, that `bits_set_below` counts them."""
    number, level = z3.Ints("number level")
    count = bits_set_below(number, level)
    counted = bits_set_below(number + 1, level) == count + z3.If(is_in_upper_half(number, level), 1, 0)
    none = z3.substitute(count, (number, z3.IntVal(0))) == 0
    return Assumptions(number >= 0, level >= 0).imply(counted) and Assumptions(level >= 0).imply(none)
