"""Sums over the powers of two in a number, as the solver knows them.

``sum(term(power) for power in powers_in(x))`` is to it some function of x.  For each obligation it is told
what is true of those that occur in it: a power that is in x adds its term to the sum of the rest.

A program that takes such sums for places also needs that they are the places that there are.  That is a
lemma on the multiples of each power of two, proved by induction from the greatest power down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, product
from typing import Any

import z3

from collectives.proof.every_size.powers import (
    CEILING,
    NUM_RANKS,
    POWER,
    QUOTIENT,
    START,
    functions_in,
    is_in_upper_half,
)
from collectives.proof.every_size.symbols import Assumptions, NotProvedError

LEVEL, TWIN = z3.Ints("level twin")
"""The level of any power in a number, and another, which checks it."""

BIT_SUM = z3.Function("bit_sum", z3.IntSort(), z3.IntSort())
"""The sum over the powers in a number, of the terms of one program."""

INVERSE = z3.Function("number_of_bit_sum", z3.IntSort(), z3.IntSort())
"""The number of which this is the sum, of the numbers that `Enumeration.lowest` tells."""


@dataclass(frozen=True)
class Enumeration:
    """That the sums of the multiples of 2^level below p are a range of numbers, each of one of them.

    Attributes:
        bounds: of a level, the first and the last number of the range.
        lowest: the level from which on it is so.
    """

    bounds: Callable[[Any], tuple[Any, Any]]
    lowest: int

    def inside(self, value: Any, level: Any) -> Any:
        """Return that *value* is in the range."""
        first, last = self.bounds(level)
        return z3.And(first <= value, value <= last)

    def is_of(self, value: Any, number: Any, level: Any) -> Any:
        """Return that *value* is the sum of *number*, which is one of the multiples."""
        return z3.And(is_multiple(number, level), BIT_SUM(number) == value)

    def is_in(self, number: Any, level: Any) -> Any:
        """Return that the sum of *number*, if that is a multiple, is in the range."""
        return z3.Implies(is_multiple(number, level), self.inside(BIT_SUM(number), level))

    def tells(self, number: Any, level: Any) -> Any:
        """Return that, of those of the lowest level, *number* is a multiple where its sum is in the range."""
        same = self.inside(BIT_SUM(number), level) == is_multiple(number, level)
        return z3.Implies(is_multiple(number, z3.IntVal(self.lowest)), same)

    def apart(self, one: Any, other: Any, level: Any) -> Any:
        """Return that two multiples do not have the same sum."""
        both = [is_multiple(one, level), is_multiple(other, level), BIT_SUM(one) == BIT_SUM(other)]
        return z3.Implies(z3.And(*both), one == other)

    def lies_within(self, level: Any) -> Any:
        """Return that the range lies within that of the lowest level."""
        return z3.And(*(self.inside(bound, z3.IntVal(self.lowest)) for bound in self.bounds(level)))

    def obligations(self, added: Any) -> Iterator[tuple[str, Any, list[Any]]]:
        """Yield what shows it at all levels, where `LEVEL` has *added* so much: claims, and what is known.

        It is shown at the highest level, and at `LEVEL` where it is so at the next one above.
        """
        one, other, value, same, shorter = z3.Ints("x y value same shorter")
        level, above = LEVEL, LEVEL + 1
        power = POWER(level)
        numbers = [one, other, one - power, other - power]
        numbers += [START(NUM_RANKS - 1, level), START(NUM_RANKS - 1, above)]
        known = [level >= self.lowest, level < CEILING]
        known += [self.is_in(number, above) for number in numbers]
        known += [self.apart(*pair, above) for pair in combinations(numbers, 2)]
        known += [
            z3.Implies(self.inside(reached, above), self.is_of(reached, number, above))
            for reached, number in ((value, same), (value - added, shorter))
        ]
        for where, at, given in (("highest", CEILING, []), ("next lower", level, known)):
            here = f"its sums over powers of two enumerate places at the {where} level"
            yield f"{here} (in the range)", self.is_in(one, at), given
            yield f"{here} (apart)", self.apart(one, other, at), given
            found = [self.is_of(value, number, at) for number in (z3.IntVal(0), same, shorter + power)]
            yield f"{here} (all of it)", z3.Or(*found), [*given, self.inside(value, at)]
        last, lowest = self.bounds(level)[1], z3.IntVal(self.lowest)
        inside = [level >= lowest, level <= CEILING]
        within = [self.is_in(number, lowest) for number in (one, START(NUM_RANKS - 1, level))]
        within.append(self.is_of(last, one, level))
        yield "ranges lie in that of the lowest level", self.lies_within(level), [*inside, *within]
        reached = BIT_SUM(other)
        told = [self.is_in(other, level), self.apart(one, other, lowest)]
        told.append(z3.Implies(self.inside(reached, level), self.is_of(reached, one, level)))
        yield "ranges tell multiples", self.tells(other, level), [*inside, *told]


@dataclass(frozen=True)
class BitSum:
    """The sum to which the power at `LEVEL` adds *term*, and what it enumerates, if that is proved."""

    term: Any
    enumeration: Enumeration | None = None

    def added_at(self, level: Any) -> Any:
        """Return what the power at *level* adds."""
        return z3.substitute(self.term, (LEVEL, level))

    def enumerating(self, enumeration: Enumeration) -> BitSum:
        """Prove that it is an *enumeration*, and return it with that known.

        Raises:
            NotProvedError: it is refuted, or not decided in time.
        """
        _prove(enumeration, self.term)
        return replace(self, enumeration=enumeration)

    def facts_about(self, claims: Iterable[Any]) -> list[Any]:
        """Return what is true of the sums in *claims*."""
        numbers, values, levels = _occurring(claims)
        facts = [BIT_SUM(z3.IntVal(0)) == 0]
        greatest = [START(NUM_RANKS - 1, level) for level in levels]
        for number, level in product([*numbers, *greatest], levels):
            added = BIT_SUM(number) == BIT_SUM(number - POWER(level)) + self.added_at(level)
            there = z3.And(level >= 0, number >= 0, is_in_upper_half(number, level))
            facts.append(z3.Implies(there, added))
        if (known := self.enumeration) is None:
            return facts
        lowest = z3.IntVal(known.lowest)
        facts += [
            z3.Implies(is_multiple(number, lowest), INVERSE(BIT_SUM(number)) == number) for number in numbers
        ]
        facts += [
            z3.Implies(known.inside(value, lowest), known.is_of(value, INVERSE(value), lowest))
            for value in values
        ]
        for level in (lowest, *levels):
            told = [known.lies_within(level), *(known.tells(number, level) for number in numbers)]
            facts.append(z3.Implies(z3.And(level >= lowest, level <= CEILING), z3.And(*told)))
        return facts


@cache
def _prove(enumeration: Enumeration, added: Any) -> None:
    for what, claim, known in enumeration.obligations(added):
        facts = [NUM_RANKS >= 2, *known]
        of_sums = BitSum(added).facts_about([claim, *facts])
        if not Assumptions(*facts, *of_sums).imply(claim):
            raise NotProvedError(f"not proved: {what}")


def is_multiple(number: Any, level: Any) -> Any:
    """Return that *number* is one of the multiples of 2^level below p."""
    return z3.And(number >= 0, number < NUM_RANKS, START(number, level) == number)


def _occurring(claims: Iterable[Any]) -> tuple[list[Any], list[Any], list[Any]]:
    """Return of which numbers there are sums in *claims*, which sums there are of numbers, and levels."""
    numbers: dict[Any, None] = {z3.IntVal(0): None}
    values: dict[Any, None] = {}
    levels: dict[Any, None] = {}
    for term in functions_in(*claims):
        if term.decl().eq(BIT_SUM):
            numbers[term.arg(0)] = None
        elif term.decl().eq(INVERSE):
            values[term.arg(0)] = None
        elif term.decl().eq(POWER):
            levels[term.arg(0)] = None
        elif term.decl().eq(START) or term.decl().eq(QUOTIENT):
            levels[term.arg(1)] = None
    return list(numbers), list(values), list(levels)
