"""Powers of two, as the solver knows them: by their level, with the facts about those that occur.

The solver knows neither 2^i nor a remainder by it.  To it ``power(i)`` is some function of a level i, and
``start(x, i)`` some function that says where the block of 2^i numbers begins in which x lies.  What is
true of them all it need not know: for each obligation it is told what is true of those that occur in it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import combinations
from typing import Any

import z3

from collectives.proof.every_size.terms import different, once_for_each, simplified

POWER = z3.Function("power", z3.IntSort(), z3.IntSort())
"""2^i, of levels i from 0 on."""

START = z3.Function("start", z3.IntSort(), z3.IntSort(), z3.IntSort())
"""The greatest multiple of 2^i that is not above x, of x and a level i from 0 on."""

QUOTIENT = z3.Function("quotient", z3.IntSort(), z3.IntSort(), z3.IntSort())
"""The whole part of x divided by 2^i, of a number x from 0 on and a level i from 0 on."""

HALVED = z3.Function("halved", z3.IntSort(), z3.IntSort(), z3.IntSort())
"""Half of where the block of 2^(i+1) numbers begins in which x lies, of x and a level i from 0 on."""

DOUBLED = z3.Function("doubled", z3.IntSort(), z3.IntSort(), z3.IntSort())
"""Twice of where the block of 2^i numbers begins in which x lies, of x and a level i from 0 on."""

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
    named = [(term.decl().name(), term) for term in functions_in(*claims)]

    def of(*functions: Any) -> list[Any]:
        names = {function.name() for function in functions}
        return [term for name, term in named if name in names]

    divided, resized = of(QUOTIENT), of(HALVED, DOUBLED)
    in_blocks = of(START, QUOTIENT, HALVED, DOUBLED)
    of_blocks = [*(term.arg(1) for term in in_blocks), *(term.arg(1) + 1 for term in resized)]
    levels = [*(term.arg(0) for term in of(POWER)), *of(FLOOR.decl()), *of_blocks]
    if not levels:
        return []
    numbers = different([*(term.arg(0) for term in in_blocks), *resized])
    return [
        *map(_of_resized, resized),
        *_of_powers(different([*levels, FLOOR, z3.IntVal(0)])),
        *_of_numbers(different([*of_blocks, FLOOR]), numbers),
        *_of_quotients(different([*levels, z3.IntVal(0)]), different([term.arg(0) for term in divided])),
    ]


def functions_in(*claims: Any) -> list[Any]:
    """Return the terms in *claims* that are of functions of the solver, and `FLOOR` if it is in them."""
    found: dict[int, Any] = {}
    for claim in claims:
        found |= {} if isinstance(claim, bool) else _functions_in(claim)
    return list(found.values())


@once_for_each
def _functions_in(term: Any) -> dict[int, Any]:
    """Return them by their identities."""
    if not z3.is_app(term):
        return {}
    found: dict[int, Any] = {}
    for part in term.children():
        if more := _functions_in(part):
            found = found | more if found else more
    if term.eq(FLOOR) or (term.num_args() and term.decl().kind() == _UNINTERPRETED):
        return {**found, term.get_id(): term}
    return found


_UNINTERPRETED = z3.Z3_OP_UNINTERPRETED


_ONE, _OTHER = z3.Ints("x! y!")
"""Any numbers."""


def _of_powers(levels: list[Any]) -> Iterator[Any]:
    yield from (FLOOR >= 0, CORE <= NUM_RANKS, NUM_RANKS < 2 * CORE, POWER(0) == 1)
    yield from map(_power, levels)
    yield from _of_pairs(_powers_in_order, levels)


def _of_numbers(levels: list[Any], numbers: list[Any]) -> Iterator[Any]:
    """Yield what is true of the blocks of *levels* in which *numbers* lie."""
    of_one = z3.And(*map(_block, levels), *_of_pairs(_blocks_in_order, levels))
    of_two = z3.And(*map(_two_blocks, levels))
    for number in numbers:
        yield z3.substitute(of_one, (_ONE, number))
    for one, other in combinations(numbers, 2):
        yield z3.substitute(of_two, (_ONE, one), (_OTHER, other))


def _of_quotients(levels: list[Any], numbers: list[Any]) -> Iterator[Any]:
    """Yield what is true of *numbers* divided by the powers of *levels*."""
    if numbers:
        of_one = z3.And(*map(_quotient, levels), *_of_pairs(_quotients_in_order, levels))
        for number in numbers:
            yield z3.substitute(of_one, (_ONE, number))


def _of_pairs(facts: Callable[..., Any], levels: list[Any]) -> Iterator[Any]:
    """Yield the *facts* of each two levels, of which the first may be below the second."""
    for pair in combinations(levels, 2):
        yield facts(*pair)
        yield facts(*pair[::-1])


@once_for_each
def _order(low: Any, high: Any) -> tuple[Any, Any]:
    """Return that *low* is a level below *high*, and that it is the next one below."""
    apart = simplified(high - low)
    if z3.is_int_value(apart) and apart.as_long() <= 0:
        return z3.BoolVal(False), z3.BoolVal(False)
    return z3.And(low >= 0, apart > 0), z3.And(low >= 0, apart == 1)


@once_for_each
def _power(level: Any) -> Any:
    return z3.Implies(level >= 0, POWER(level) >= 1)


@once_for_each
def _powers_in_order(low: Any, high: Any) -> Any:
    below, next_below = _order(low, high)
    doubled = 2 * POWER(low)
    return z3.And(z3.Implies(below, doubled <= POWER(high)), z3.Implies(next_below, doubled == POWER(high)))


@once_for_each
def _block(level: Any) -> Any:
    if level.eq(z3.IntVal(0)):
        return START(_ONE, level) == _ONE
    start, size = START(_ONE, level), POWER(level)
    inside = z3.And(start <= _ONE, start + size > _ONE)
    known = [z3.Implies(level >= 0, z3.And(inside, _equal_or_apart(z3.IntVal(0), start, size)))]
    if z3.is_int_value(level) and level.as_long() > 0:
        known.append(start == _ONE - _ONE % 2 ** level.as_long())
    return z3.And(*known)


@once_for_each
def _two_blocks(level: Any) -> Any:
    if level.eq(z3.IntVal(0)):
        return z3.BoolVal(True)
    starts = START(_ONE, level), START(_OTHER, level)
    return z3.Implies(level >= 0, _equal_or_apart(*starts, POWER(level)))


def _equal_or_apart(one: Any, other: Any, size: Any) -> Any:
    """Return that two blocks of one *size* are the same or have no number in common, by where they begin."""
    return z3.Or(one == other, one + size <= other, other + size <= one)


def _of_resized(term: Any) -> Any:
    """Return what is true of *term*, half or twice of where a block begins: that a block begins there."""
    number, level = term.children()
    if term.decl().eq(DOUBLED):
        size, there = term == 2 * START(number, level), START(term, level + 1)
    else:
        size, there = 2 * term == START(number, level + 1), START(term, level)
    return z3.Implies(level >= 0, z3.And(size, there == term))


@once_for_each
def _blocks_in_order(low: Any, high: Any) -> Any:
    below, next_below = _order(low, high)
    inner, outer = START(_ONE, low), START(_ONE, high)
    inside = z3.And(outer <= inner, inner + POWER(low) <= outer + POWER(high))
    halves = z3.Or(inner == outer, inner == outer + POWER(low))
    return z3.And(z3.Implies(below, inside), z3.Implies(next_below, halves))


@once_for_each
def _quotient(level: Any) -> Any:
    quotient = QUOTIENT(_ONE, level)
    of_level = z3.And(quotient >= 0, (quotient == 0) == (START(_ONE, level) == 0))
    known = [z3.Implies(z3.And(level >= 0, _ONE >= 0), of_level)]
    if z3.is_int_value(level) and level.as_long() >= 0:
        known.append(quotient == _ONE / 2 ** level.as_long())
    return z3.And(*known)


@once_for_each
def _quotients_in_order(low: Any, high: Any) -> Any:
    _, next_below = _order(low, high)
    odd = z3.If(is_in_upper_half(_ONE, low), 1, 0)
    return z3.Implies(next_below, QUOTIENT(_ONE, low) == 2 * QUOTIENT(_ONE, high) + odd)
