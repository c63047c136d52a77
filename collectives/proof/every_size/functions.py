"""Functions that know symbols, in place of those that programs call."""

from __future__ import annotations

from functools import reduce
from math import lcm
from typing import Any

import numpy as np
import z3

from collectives.proof.every_size.linear import is_fresh
from collectives.proof.every_size.solving import LITTLE_WORK
from collectives.proof.every_size.symbols import NotProvedError, Number, minimum, term
from collectives.proof.every_size.terms import terms_in


def maximum(*values: Any) -> Any:
    """Return the greatest of *values*, in place of the built-in ``max``."""
    values = values if len(values) > 1 else tuple(values[0])
    if isinstance(values[0], Ratio):
        return values[0] if len({*values}) == 1 else Ratio(z3.FreshInt("greatest"))
    number = next((value for value in values if isinstance(value, Number)), None)
    if number is None:
        return max(*values)

    def greater(one: Any, other: Any) -> Any:
        for high, low in ((one, other), (other, one)):
            if number.assumptions.imply(high >= low, LITTLE_WORK):
                return high
        return z3.If(one >= other, one, other)

    return number.of(reduce(greater, map(term, values)))


def common_multiple(*values: Any) -> Any:
    """Return a common multiple of *values*, in place of ``math.lcm``."""
    number = next((value for value in values if isinstance(value, Number)), None)
    if number is None:
        return lcm(*values)
    terms = [term(value) for value in values]
    if not number.assumptions.imply(z3.And(*(value >= 1 for value in terms))):
        raise NotProvedError("it takes a common multiple of what may be below 1")
    return number.of(number.assumptions.multiples.common(terms))


class Numpy:
    """As much of numpy as programs need of it."""

    ndarray = np.ndarray
    minimum = staticmethod(minimum)
    maximum = staticmethod(maximum)
    where = staticmethod(z3.If)


class Ratio:
    """A fraction of symbols, in place of ``Fraction``."""

    def __init__(self, numerator: Any, denominator: Any = 1) -> None:
        self.numerator = numerator
        self.denominator = denominator

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ratio) and self._terms() == other._terms()

    def __hash__(self) -> int:
        return hash(self._terms())

    def _terms(self) -> tuple[str, ...]:
        return tuple(z3.simplify(term(part)).sexpr() for part in (self.numerator, self.denominator))

    def __truediv__(self, other: Any) -> Ratio:
        return Ratio(self.numerator, other * self.denominator)

    def __add__(self, other: Any) -> Ratio:
        if isinstance(other, Ratio):
            both = other.denominator * self.denominator
            return Ratio(self.numerator * other.denominator + other.numerator * self.denominator, both)
        return Ratio(self.numerator + other * self.denominator, self.denominator)

    __radd__ = __add__

    def of(self, total: Any) -> tuple[int, Any] | None:
        """Return a number, and what that number times this share of *total*, a term, is; None: not known.

        Nothing is known of a sum that was not read, nor of what is not linear.
        """
        numerator, denominator = z3.simplify(term(self.numerator)), z3.simplify(term(self.denominator))
        if any(is_fresh(part) for part in terms_in(numerator) if z3.is_const(part)):
            return None
        for number in range(1, MOST_CHUNKS_PER_PART + 1):
            if z3.eq(z3.simplify(total - number * denominator), z3.IntVal(0)):
                return 1, number * numerator
        is_linear = z3.is_int_value(numerator) or z3.is_int_value(z3.simplify(total))
        if z3.is_int_value(denominator) and is_linear:
            return denominator.as_long(), numerator * total
        return None


MOST_CHUNKS_PER_PART = 8
"""That are tried: a share of as many chunks as there are ranks is a share of these, too."""


def whole(value: Any) -> Any:
    """Return *value* as a whole number, in place of the built-in ``int``."""
    return value if isinstance(value, Number) else int(value)
