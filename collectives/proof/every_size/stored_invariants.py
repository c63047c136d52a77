"""Invariants of programs that store parts by distance: Bruck's all-to-all, and PAT.

Bruck's parts travel over the powers of two in the distance from their rank to the one that gets them, the
greatest first.  Those that travel next are at the end of the buffer; blocks of as many parts stay together.

PAT's distances, from the rank that has a part, are below p; parts whose distances are multiples of 2^i are a
block of places, of which the part from the greatest of these distances has the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import z3

from collectives.proof.every_size.bit_sums import BIT_SUM, Enumeration
from collectives.proof.every_size.demands import Held, everywhere
from collectives.proof.every_size.powers import (
    DOUBLED,
    HALVED,
    NUM_RANKS,
    POWER,
    QUOTIENT,
    START,
    level_of,
)
from collectives.proof.every_size.symbols import modulo

Invariant = Callable[[Any, Any], Held]
"""Of (half the distance whose multiples have been reached, number of ranks p)."""

LAST = NUM_RANKS - 1


def _block(level: Any) -> tuple[Any, Any]:
    """Return the first and the last place of the multiples of 2^level, counted from that of distance 0."""
    first = BIT_SUM(START(LAST, level))
    return first, first + QUOTIENT(LAST, level)


def _place(distance: Any) -> Any:
    return BIT_SUM(distance) - BIT_SUM(LAST - LAST % 2)


def _in_block(place: Any, level: Any) -> Any:
    """Return that *place* is one of parts whose distances are multiples of 2^level."""
    first, last = _block(level)
    counted = place + BIT_SUM(LAST - LAST % 2)
    return z3.And(counted >= first, counted <= last)


def _is_multiple(distance: Any, level: Any) -> Any:
    return START(distance, level) == distance


def _gathered(half: Any, p: Any) -> Held:
    """A rank has the parts from these distances."""
    level = z3.simplify(level_of(half) + 1)

    def holds(rank: Any, place: Any, q: Any, j: Any) -> Any:
        distance = modulo(rank - q, p)
        return z3.And(j == q, _is_multiple(distance, level), place == _place(distance))

    return Held(lambda rank, place: _in_block(place, level), holds)


def _reduced(half: Any, p: Any) -> Held:
    """A rank has, for these distances, what ranks up to the next such distance gave to that part."""
    level = z3.simplify(level_of(half) + 1)

    def holds(rank: Any, place: Any, q: Any, j: Any) -> Any:
        distance, of_giver = modulo(rank - j, p), modulo(q - j, p)
        return z3.And(
            _is_multiple(distance, level), place == _place(distance), START(of_giver, level) == distance
        )

    return Held(lambda rank, place: _in_block(place, level), holds)


PAT_INVARIANTS: Mapping[tuple[str, str], tuple[Invariant, ...]] = {
    ("pat", "all_gather"): (_gathered,),
    ("pat", "reduce_scatter"): (_reduced,),
}
"""Of each loop of a program, in order."""

PAT_ENUMERATIONS: Mapping[tuple[str, str], Enumeration] = {
    ("pat", "all_gather"): Enumeration(_block, lowest=1),
    ("pat", "reduce_scatter"): Enumeration(_block, lowest=1),
}
"""What the sums over powers of two in a program enumerate."""


def _num_staying(level: Any) -> Any:
    """Return how many parts do not travel over 2^level."""
    rest = NUM_RANKS - START(NUM_RANKS, level + 1)
    return HALVED(NUM_RANKS, level) + z3.If(rest < POWER(level), rest, POWER(level))


def _place_of_part(part: Any, level: Any) -> Any:
    """Return where *part* is while those that travel over 2^level are at the end."""
    block = START(part, level)
    travels = START(part, level + 1) != block
    return HALVED(part, level) + part - block + z3.If(travels, _num_staying(level), 0)


def _stored(level: Any, next_level: Any) -> Held:
    """Parts have travelled over 2^level and more; those that travel over 2^next_level are at the end."""

    def holds(rank: Any, place: Any, q: Any, j: Any) -> Any:
        distance = modulo(j - q, NUM_RANKS)
        there = modulo(q + START(distance, level), NUM_RANKS)
        return z3.And(rank == there, place == _place_of_part(distance, next_level))

    return Held(everywhere, holds)


def travelled(size: Any, p: Any) -> Held:
    """Parts have travelled over *size* and more, and are stored as they were for that."""
    level = level_of(size)
    return _stored(level, level)


def arranged(size: Any, p: Any) -> Held:
    """Parts have travelled over more than *size*, and those that travel over *size* are at the end."""
    level = level_of(size)
    return _stored(level + 1, level)


def written(size: Any, place: Any) -> tuple[Any, Any, Any]:
    """Return whether a part at *place* does not travel this far, and the first of its block in both cases."""
    level = level_of(size)
    staying = _num_staying(level)
    return place < staying, DOUBLED(place, level), DOUBLED(place - staying, level) + POWER(level)
