"""Powers of two, as the solver knows them: by their level, with the facts about those that occur.

The solver knows neither 2^i nor a remainder by it.  To it ``power(i)`` is some function of a level i, and
``start(x, i)`` some function that says where the block of 2^i numbers begins in which x lies.  What is
true of them all it need not know: for each obligation it is told what is true of those that occur in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain, combinations
from typing import Any

import z3

POWER = z3.Function("power", z3.IntSort(), z3.IntSort())
"""2^i, of levels i from 0 on."""

START = z3.Function("start", z3.IntSort(), z3.IntSort(), z3.IntSort())
"""The greatest multiple of 2^i that is not above x, of x and a level i from 0 on."""

QUOTIENT = z3.Function("quotient", z3.IntSort(), z3.IntSort(), z3.IntSort())
"""The whole part of x divided by 2^i, of a number x from 0 on and a level i from 0 on."""

NUM_RANKS = z3.Int("p")
"""The number of ranks p."""

ROOT = z3.Int("root")
"""The rank that is the root, of a collective that has one."""

FLOOR = z3.Int("k")
"""The level of the greatest power of two that is not above p."""

CORE = POWER(FLOOR)
"""That power."""

CEILING = FLOOR + z3.If(NUM_RANKS == CORE, 0, 1)
"""The level of the least power of two that is not below p."""


def level_of(value: Any) -> Any:
    """Return the level of *value*, a term, or None where it is not known to be a power of two."""
    value = z3.simplify(value)
    if z3.is_int_value(value):
        number = value.as_long()
        return z3.IntVal(number.bit_length() - 1) if number > 0 and number & (number - 1) == 0 else None
    if z3.is_app(value) and value.decl().eq(POWER):
        return value.arg(0)
    if z3.is_mul(value) and value.num_args() == 2:
        levels = [level_of(factor) for factor in value.children()]
        return None if None in levels else z3.simplify(levels[0] + levels[1])
    return None


def bit_length(value: Any) -> Any:
    """Return how many bits *value* has, where it is p or a power of two, or one less; else None."""
    value = z3.simplify(value)
    above = z3.simplify(value + 1)
    if z3.eq(value, NUM_RANKS):
        return FLOOR + 1
    if z3.eq(above, NUM_RANKS):
        return CEILING
    level = level_of(value)
    return level_of(above) if level is None else level + 1


def is_in_upper_half(value: Any, level: Any) -> Any:
    """Return whether the bit of *value* at *level* is set: it lies in the upper half of a block."""
    return START(value, level) != START(value, level + 1)


def with_bit_turned(value: Any, level: Any) -> Any:
    """Return *value* with the bit at *level* turned."""
    return value + z3.If(is_in_upper_half(value, level), -POWER(level), POWER(level))


def facts_about(claims: Iterable[Any]) -> list[Any]:
    """Return what is true of the powers and blocks that occur in *claims*."""
    occurring = [_occurring(claim) for claim in claims]
    levels, of_blocks, numbers, divided = (
        tuple({z3.simplify(term): term for term in chain.from_iterable(found)})
        for found in zip(*occurring, strict=True)
    )
    if not levels:
        return []
    any_numbers, facts = _facts(levels, of_blocks, len(numbers))
    all_facts = [z3.substitute(facts, *zip(any_numbers, numbers, strict=True))]
    return [*all_facts, *_of_quotients(list(divided), list(dict.fromkeys([*levels, z3.IntVal(0)])))]


@lru_cache(maxsize=4096)
def _occurring(claim: Any) -> tuple[tuple[Any, ...], ...]:
    """Return what is in *claim*: levels of powers, levels of blocks, numbers in blocks, numbers divided."""
    levels, of_blocks, numbers, divided = [], [], [], []
    for term in terms_in(claim):
        if term.eq(FLOOR):
            levels.append(term)
        elif term.decl().eq(POWER):
            levels.append(term.arg(0))
        elif term.decl().eq(START):
            numbers.append(term.arg(0))
            of_blocks.append(term.arg(1))
        elif term.decl().eq(QUOTIENT):
            divided.append(term.arg(0))
            numbers.append(term.arg(0))
            of_blocks.append(term.arg(1))
    return (*levels, *of_blocks), tuple(of_blocks), tuple(numbers), tuple(divided)


def terms_in(claim: Any) -> Iterator[Any]:
    """Yield each term in *claim* once."""
    seen, waiting = set(), [claim]
    while waiting:
        term = waiting.pop()
        if z3.is_app(term) and term.get_id() not in seen:
            seen.add(term.get_id())
            waiting += term.children()
            yield term


@lru_cache(maxsize=256)
def _facts(levels: tuple[Any, ...], of_blocks: tuple[Any, ...], count: int) -> tuple[list[Any], Any]:
    """Return so many symbols of numbers, and what is true of their blocks and of the *levels*."""
    numbers = [z3.FreshInt("x") for _ in range(count)]
    of_powers = _of_powers(list(dict.fromkeys([*levels, FLOOR, z3.IntVal(0)])))
    return numbers, z3.And(*of_powers, *_of_blocks(numbers, list(dict.fromkeys([*of_blocks, FLOOR]))))


def _of_powers(levels: list[Any]) -> Iterator[Any]:
    yield from (FLOOR >= 0, CORE <= NUM_RANKS, NUM_RANKS < 2 * CORE, POWER(0) == 1)
    for level in levels:
        yield z3.Implies(level >= 0, POWER(level) >= 1)
    for low, high, below, next_below in _in_order(levels):
        yield z3.Implies(below, 2 * POWER(low) <= POWER(high))
        yield z3.Implies(next_below, 2 * POWER(low) == POWER(high))


def _of_blocks(numbers: list[Any], levels: list[Any]) -> Iterator[Any]:
    for level in levels:
        if level.eq(z3.IntVal(0)):
            yield from (START(number, level) == number for number in numbers)
            continue
        size, there = POWER(level), level >= 0
        for number in numbers:
            start = START(number, level)
            yield z3.Implies(there, z3.And(start <= number, number < start + size))
            if z3.is_int_value(level) and level.as_long() > 0:
                yield start == number - number % 2 ** level.as_long()
        for one, other in combinations([z3.IntVal(0), *(START(number, level) for number in numbers)], 2):
            yield z3.Implies(there, z3.Or(one == other, one + size <= other, other + size <= one))
    for low, high, below, next_below in _in_order(levels):
        for number in numbers:
            inner, outer = START(number, low), START(number, high)
            inside = z3.And(outer <= inner, inner + POWER(low) <= outer + POWER(high))
            yield z3.Implies(below, inside)
            yield z3.Implies(next_below, z3.Or(inner == outer, inner == outer + POWER(low)))


def _of_quotients(numbers: list[Any], levels: list[Any]) -> Iterator[Any]:
    for number in numbers:
        for level in levels:
            nothing_left = START(number, level) == 0
            quotient = QUOTIENT(number, level)
            yield z3.Implies(z3.And(level >= 0, number >= 0), (quotient == 0) == nothing_left)
            yield z3.Implies(z3.And(level >= 0, number >= 0), quotient >= 0)
            if z3.is_int_value(level) and level.as_long() >= 0:
                yield quotient == number / 2 ** level.as_long()
        for low, high, _, next_below in _in_order(levels):
            doubled = QUOTIENT(number, low) == 2 * QUOTIENT(number, high) + z3.If(
                is_in_upper_half(number, low), 1, 0
            )
            yield z3.Implies(next_below, doubled)


def _in_order(levels: list[Any]) -> Iterator[tuple[Any, Any, Any, Any]]:
    """Yield pairs of levels, with when the first is below the second, and when it is the next one below."""
    for pair in combinations(levels, 2):
        for low, high in (pair, pair[::-1]):
            apart = z3.simplify(high - low)
            if not (z3.is_int_value(apart) and apart.as_long() <= 0):
                yield low, high, z3.And(low >= 0, apart > 0), z3.And(low >= 0, apart == 1)
