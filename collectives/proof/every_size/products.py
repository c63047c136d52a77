"""Products and quotients of symbols: which are multiples of which, and what is left of a division.

A remainder by a number of ranks that is a symbol, or the share of a rank in the chunks, is not linear.  Here
is what can be said of them by looking at them; `linear` has what the solver is told.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import lcm, prod
from typing import Any

import z3

from collectives.proof.every_size.terms import terms_in

DIVIDED = z3.Function("divided", z3.IntSort(), z3.IntSort(), z3.IntSort())
"""The whole part of x divided by d, of a number x and a number d from 1 on."""

REMAINDER = z3.Function("remainder", z3.IntSort(), z3.IntSort(), z3.IntSort())
"""What remains of x then."""

OF_NUMBERS: Mapping[str, Callable[[int, int], int]] = {
    DIVIDED.name(): lambda number, by: number // by,
    REMAINDER.name(): lambda number, by: number % by,
}
"""What these functions are of numbers, by name."""


def simple(value: Any) -> Any:
    """Return *value* as a sum of products of symbols, where it is made of such."""
    return z3.simplify(value, som=True)


def by_choice(function: Callable[..., Any], *values: Any) -> Any:
    """Return *function* of *values*; of each side, where these are choices."""
    choices = (part for value in values for part in terms_in(value) if z3.is_app_of(part, z3.Z3_OP_ITE))
    condition = next((choice.arg(0) for choice in choices), None)
    if condition is None:
        return function(*map(simple, values))
    sides = (
        by_choice(
            function, *(simple(z3.substitute(value, (condition, z3.BoolVal(side)))) for value in values)
        )
        for side in (True, False)
    )
    return z3.If(condition, *sides)


def times(one: Any, other: Any) -> Any:
    """Return the product of two terms."""
    if z3.is_int_value(one) or z3.is_int_value(other):
        return one * other
    return by_choice(lambda a, b: simple(a * b), one, other)


@dataclass
class Multiples:
    """Which symbols are multiples of which.

    Attributes:
        known: what holds of the symbols that were made.
        made: how each of those is worked out of numbers, in order.
    """

    known: list[Any] = field(default_factory=list)
    made: list[tuple[Any, Callable[..., int], tuple[Any, ...]]] = field(default_factory=list)
    _divisors: dict[Any, list[tuple[Any, ...]]] = field(default_factory=lambda: defaultdict(list))
    _common: dict[tuple[Any, ...], Any] = field(default_factory=dict)
    _quotients: dict[tuple[Any, Any], Any] = field(default_factory=dict)

    def common(self, numbers: Iterable[Any]) -> Any:
        """Return a common multiple of *numbers*, terms above 0; that it is the least one, nobody is told."""
        different = list(dict.fromkeys(map(simple, numbers)))
        if len(different) == 1:
            return different[0]
        key = tuple(different)
        if key not in self._common:
            self._common[key] = self._make(lcm, key)
            self._divisors[self._common[key]] += [monomial_of(number)[1] for number in different]
        return self._common[key]

    def quotient(self, value: Any, by: Any) -> Any | None:
        """Return *value*, a sum, divided by *by*, or None where that is not known to leave no remainder."""
        total = z3.IntVal(0)
        for monomial in _sum_of(value):
            part = self._without(monomial, by)
            if part is None:
                return None
            total += part
        return simple(total)

    def whole(self, value: Any) -> Any:
        """Return *value*, a sum, with what was divided in place of quotients times their divisors."""
        parts = []
        for monomial in _sum_of(value):
            number, factors = monomial_of(monomial)
            for (multiple, by), quotient in self._quotients.items():
                if quotient in factors and by in factors:
                    left = list(factors)
                    left.remove(quotient)
                    left.remove(by)
                    factors = (multiple, *left)
            parts.append(prod(factors, start=z3.IntVal(number)))
        return simple(sum(parts, z3.IntVal(0)))

    def _without(self, monomial: Any, by: Any) -> Any | None:
        number, factors = monomial_of(monomial)
        rest = [factor for factor in factors if not factor.eq(by)]
        if len(rest) < len(factors):
            rest += [by] * (len(factors) - len(rest) - 1)
            return prod(rest, start=z3.IntVal(number))
        for factor in factors:
            if any(self._contains(divisor, by) for divisor in self._divisors.get(factor, ())):
                others = list(factors)
                others.remove(factor)
                return prod([self._part(factor, by), *others], start=z3.IntVal(number))
        return z3.IntVal(0) if number == 0 else None

    def _contains(self, factors: tuple[Any, ...], by: Any) -> bool:
        return any(
            factor.eq(by) or any(self._contains(divisor, by) for divisor in self._divisors.get(factor, ()))
            for factor in factors
        )

    def _part(self, multiple: Any, by: Any) -> Any:
        """Return *multiple* divided by *by*."""
        if (multiple, by) not in self._quotients:
            part = self._make(lambda number, divisor: number // divisor, (multiple, by))
            self.known.append(by * part == multiple)
            self._quotients[multiple, by] = part
            for factors in self._divisors[multiple]:
                if self._contains(factors, by):
                    self._divisors[part].append(self._remaining(factors, by))
        return self._quotients[multiple, by]

    def _remaining(self, factors: tuple[Any, ...], by: Any) -> tuple[Any, ...]:
        """Return *factors* without one of which *by* is a divisor."""
        left = list(factors)
        left.remove(next(factor for factor in factors if self._contains((factor,), by)))
        return tuple(left)

    def _make(self, function: Callable[..., int], of: tuple[Any, ...]) -> Any:
        symbol = z3.Int(f"multiple{len(self.made)}")
        self.made.append((symbol, function, of))
        self.known.append(symbol >= 1)
        return symbol


def _sum_of(value: Any) -> list[Any]:
    value = simple(value)
    return value.children() if z3.is_add(value) else [value]


def monomial_of(value: Any) -> tuple[int, tuple[Any, ...]]:
    """Return the number and the other factors of a product."""
    waiting, number, factors = [value], 1, []
    while waiting:
        part = waiting.pop(0)
        if z3.is_mul(part):
            waiting = part.children() + waiting
        elif z3.is_int_value(part):
            number *= part.as_long()
        else:
            factors.append(part)
    return number, tuple(factors)


def divided(value: Any, by: Any, multiples: Multiples, is_so: Callable[[Any], bool]) -> Any:
    """Return the whole part of *value* divided by *by*, which *is_so* may help to find."""

    def of_sums(value: Any, by: Any) -> Any:
        if z3.is_int_value(by) and by.as_long() == 1:
            return value
        exact, rest = z3.IntVal(0), z3.IntVal(0)
        for monomial in _sum_of(value):
            quotient = multiples.quotient(monomial, by)
            if quotient is None:
                rest += monomial
            else:
                exact += quotient
        rest = simple(rest)
        for number in (0, -1, 1):
            if is_so(z3.And(number * by <= rest, rest < (number + 1) * by)):
                return simple(exact + number)
        return simple(exact + DIVIDED(rest, by))

    return by_choice(of_sums, value, by)
