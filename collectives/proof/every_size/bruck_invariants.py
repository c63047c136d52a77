"""Invariants of Bruck's all-to-all: where a part is, by how far it is from its rank to the one that gets it.

Parts travel over the powers of two in that distance, the greatest first.  Those that travel next are at the
end of the buffer; blocks of as many parts stay together.
"""

from __future__ import annotations

from typing import Any

import z3

from collectives.proof.every_size.demands import Held, everywhere
from collectives.proof.every_size.powers import DOUBLED, HALVED, NUM_RANKS, POWER, START, level_of
from collectives.proof.every_size.symbols import modulo


def _num_staying(level: Any) -> Any:
    """Return how many parts do not travel over 2^level."""
    rest = NUM_RANKS - START(NUM_RANKS, level + 1)
    return HALVED(NUM_RANKS, level) + z3.If(rest < POWER(level), rest, POWER(level))


def _place(part: Any, level: Any) -> Any:
    """Return where *part* is while those that travel over 2^level are at the end."""
    block = START(part, level)
    travels = START(part, level + 1) != block
    return HALVED(part, level) + part - block + z3.If(travels, _num_staying(level), 0)


def _stored(level: Any, next_level: Any) -> Held:
    """Parts have travelled over 2^level and more; those that travel over 2^next_level are at the end."""

    def holds(rank: Any, place: Any, q: Any, j: Any) -> Any:
        distance = modulo(j - q, NUM_RANKS)
        there = modulo(q + START(distance, level), NUM_RANKS)
        return z3.And(rank == there, place == _place(distance, next_level))

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
