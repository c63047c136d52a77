"""Numbers and truth values of the solver, as a program sees them.

A remainder by the number of ranks p becomes a choice between a number and itself plus or minus p, so
what programs say stays linear, which the solver decides.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
import z3

from collectives.errors import ProgramError
from collectives.proof.every_size.powers import (
    HALVED,
    POWER,
    QUOTIENT,
    START,
    bit_length,
    facts_about,
    level_of,
    with_bit_turned,
)
from collectives.proof.every_size.products import (
    REMAINDER,
    Multiples,
    divided,
    times,
)
from collectives.proof.every_size.solving import LITTLE_WORK, MOST_WORK, contradict
from collectives.proof.every_size.terms import once_for_each, simplified

BIT_COUNT = z3.Function("bit_count", z3.IntSort(), z3.IntSort())
"""How many bits of a number are set; `sums` knows of the numbers below another."""


class NotProvedError(ProgramError):
    """A program was not proved for every number of ranks: refuted, unreadable, or too hard."""


class BranchError(NotProvedError):
    """A program goes one way or the other, depending on its symbols."""


class Assumptions:
    """What holds where a program is being read: bounds of p, of the rank and of loop variables."""

    def __init__(self, *facts: Any, products: bool = False) -> None:
        self.facts = list(facts)
        self.products = products  # whether there may be products of symbols, or quotients
        self.multiples = Multiples()

    def imply(self, claim: Any, work: int = MOST_WORK) -> bool:
        """Return whether the facts imply *claim*; where the solver gives up, they do not."""
        given = [*map(term, self.multiples.known), *map(term, self.facts), z3.Not(claim)]
        return contradict([*given, *facts_about(given)], work, products=self.products)


def term(value: Any) -> Any:
    """Return *value*, a number or truth value of either kind, as a term of the solver."""
    if isinstance(value, Number | Truth):
        return value.term
    if isinstance(value, z3.ExprRef):
        return value
    return z3.BoolVal(value) if isinstance(value, bool) else z3.IntVal(value)


@once_for_each
def symbols_of(term: Any) -> frozenset[int]:
    """Return the identities of the symbols in *term*."""
    children = term.children()
    return frozenset().union(*map(symbols_of, children)) if children else frozenset({term.get_id()})


class Truth:
    """A truth value that depends on symbols; a branch on it must be the same for all of them."""

    __slots__ = ("assumptions", "term")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: Any, assumptions: Assumptions) -> None:
        self.term = value
        self.assumptions = assumptions

    def __and__(self, other: Any) -> Truth:
        return Truth(z3.And(self.term, term(other)), self.assumptions)

    def __or__(self, other: Any) -> Truth:
        return Truth(z3.Or(self.term, term(other)), self.assumptions)

    def __invert__(self) -> Truth:
        return Truth(z3.Not(self.term), self.assumptions)

    __rand__, __ror__ = __and__, __or__

    def __bool__(self) -> bool:
        if self.assumptions.imply(self.term):
            return True
        if self.assumptions.imply(z3.Not(self.term)):
            return False
        raise BranchError(f"it branches on {self.term}, which depends on rank, step or number of ranks")


class Number:
    """A whole number that depends on symbols, with the arithmetic that stays linear."""

    __slots__ = ("assumptions", "num_ranks", "term")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, value: Any, num_ranks: Any, assumptions: Assumptions) -> None:
        self.term = value
        self.num_ranks = num_ranks
        self.assumptions = assumptions

    def of(self, value: Any) -> Number:
        """Return a number under the same assumptions."""
        return Number(value, self.num_ranks, self.assumptions)

    def __add__(self, other: Any) -> Number:
        return self.of(self.term + term(other))

    def __sub__(self, other: Any) -> Number:
        return self.of(self.term - term(other))

    def __rsub__(self, other: Any) -> Number:
        return self.of(term(other) - self.term)

    def __mul__(self, other: Any) -> Number:
        if isinstance(other, Truth):
            return self.of(z3.If(other.term, self.term, 0))
        self.assumptions.products |= isinstance(other, Number)
        return self.of(times(self.term, term(other)))

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self) -> Number:
        return self.of(-self.term)

    def __and__(self, other: Any) -> Number:
        return self.of(START(self.term, self._level(-other)))

    def __xor__(self, other: Any) -> Number:
        return self.of(with_bit_turned(self.term, self._level(other)))

    def __rlshift__(self, other: Any) -> Number:
        if not self.assumptions.imply(self.term >= 0):
            raise NotProvedError(f"it shifts by {self.term}, which may be below 0")
        return self.of(other * POWER(z3.simplify(self.term)))

    def __rshift__(self, other: Any) -> Number:
        level = self._level(self) - term(other)
        if not self.assumptions.imply(level >= 0):
            raise NotProvedError(f"it shifts {self.term} away")
        return self.of(POWER(z3.simplify(level)))

    def __floordiv__(self, other: Any) -> Any:
        by, own = level_of(term(other)), level_of(self.term)
        if by is not None and own is not None and self.assumptions.imply(own >= by):
            level = z3.simplify(own - by)
            return 1 << level.as_long() if z3.is_int_value(level) else self.of(POWER(level))
        if isinstance(other, int) and other == 2 and self._begins_a_pair():
            return self.of(HALVED(self.term.arg(0), simplified(self.term.arg(1) - 1)))
        if isinstance(other, int) and other > 0:
            return self.of(self.term / other)
        if by is not None and self.assumptions.imply(z3.And(by >= 0, self.term >= 0), LITTLE_WORK):
            return self.of(QUOTIENT(self.term, by))
        self._check_divisor(other)
        return self.of(divided(self.term, term(other), self.assumptions.multiples, self._probably))

    def __rfloordiv__(self, other: Any) -> Any:
        return self.of(term(other)) // self

    def _begins_a_pair(self) -> bool:
        """Return whether it is where a block of two or more numbers begins."""
        return bool(self.term.decl().eq(START)) and self.assumptions.imply(self.term.arg(1) >= 1)

    def _check_divisor(self, other: Any) -> None:
        if not self.assumptions.imply(term(other) >= 1):
            raise NotProvedError(f"it divides {self.term} by {term(other)}, which may be below 1")
        self.assumptions.products = True

    def _probably(self, claim: Any) -> bool:
        return self.assumptions.imply(claim, LITTLE_WORK)

    def bit_length(self) -> Number:
        """Return how many bits it has, as an int does."""
        length = bit_length(self.term)
        if length is None:
            raise NotProvedError(f"it asks how many bits {self.term} has")
        return self.of(z3.simplify(length))

    def bit_count(self) -> Number:
        """Return how many of its bits are set."""
        return self.of(BIT_COUNT(self.term))

    def _level(self, power: Any) -> Any:
        level = level_of(term(power))
        if level is None:
            raise NotProvedError(f"it takes bits of {term(power)}, which is no power of two")
        return level

    def __bool__(self) -> bool:
        return bool(self != 0)

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any) -> Any:
        if function is not np.minimum or method != "__call__":
            raise NotProvedError(f"it calls numpy.{function.__name__}")
        return minimum(*inputs)

    def __mod__(self, other: Any) -> Number:
        if isinstance(other, int) and other > 0:
            return self.of(self.term % other)
        by = term(other)
        if self.assumptions.imply(z3.And(by >= 1, self.term >= -by, self.term < 2 * by)):
            return self.of(modulo(self.term, by))
        if self.assumptions.imply(z3.And(by >= 1, self.term >= 0, self.term < 3 * by)):
            return self.of(modulo(z3.If(self.term < by, self.term, self.term - by), by))
        self._check_divisor(other)
        return self.of(REMAINDER(self.term, by))

    def __lt__(self, other: Any) -> Truth:
        return Truth(self.term < term(other), self.assumptions)

    def __le__(self, other: Any) -> Truth:
        return Truth(self.term <= term(other), self.assumptions)

    def __gt__(self, other: Any) -> Truth:
        return Truth(self.term > term(other), self.assumptions)

    def __ge__(self, other: Any) -> Truth:
        return Truth(self.term >= term(other), self.assumptions)

    def __eq__(self, other: object) -> Truth:  # type: ignore[override]
        return Truth(self.term == term(other), self.assumptions)

    def __ne__(self, other: object) -> Truth:  # type: ignore[override]
        return Truth(self.term != term(other), self.assumptions)


def modulo(value: Any, by: Any) -> Any:
    """Return the remainder by n of *value*, which is from -n to 2n - 1."""
    return z3.If(value < 0, value + by, z3.If(value < by, value, value - by))


def minimum(*values: Any) -> Any:
    """Return the least of *values*, in place of the built-in ``min``."""
    number = next((value for value in values if isinstance(value, Number)), None)
    if number is None:
        return min(*values)

    def less(one: Any, other: Any) -> Any:
        return one if number.assumptions.imply(one <= other) else z3.If(one <= other, one, other)

    return number.of(reduce(less, map(term, values)))
