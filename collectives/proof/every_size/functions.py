"""Functions that know symbols, in place of those that programs call."""

from __future__ import annotations

from functools import reduce
from math import lcm
from typing import Any

import numpy as np
import z3

from collectives.proof.every_size.solving import LITTLE_WORK
from collectives.proof.every_size.symbols import NotProvedError, Number, minimum, term


def maximum(*values: Any) -> Any:
    """Return the greatest of *values*, in place of the built-in ``max``."""
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
    """A fraction of symbols, of which nothing is asked."""

    def __init__(self, numerator: Any, denominator: Any = 1) -> None:
        pass

    def __add__(self, other: Any) -> Ratio:
        return self


def whole(value: Any) -> Any:
    """Return *value* as a whole number, in place of the built-in ``int``."""
    return value if isinstance(value, Number) else int(value)
