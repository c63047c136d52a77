"""Hints by which the chunks that ranks send are counted: formulas of loops, and which ranks are busiest.

As an invariant, a formula proves nothing by itself: turns of the program have to carry it on, at least or
at most.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import z3

from collectives.proof.every_size.block_invariants import EXTRA, leads, number_of, stays
from collectives.proof.every_size.powers import (
    CEILING,
    NUM_RANKS,
    POWER,
    QUOTIENT,
    ROOT,
    START,
    level_of,
)
from collectives.proof.every_size.symbols import modulo

Sent = Callable[[Any, Any], Any]
"""Of (loop variable, rank): how many chunks that rank has sent in a loop before this turn."""


@dataclass(frozen=True)
class Hints:
    """How much is sent in each loop of a program that sends, in order; and ranks, of which one is busiest."""

    formulas: tuple[Sent, ...]
    busiest: tuple[Any, ...]


def _bruck(distance: Any, rank: Any) -> Any:
    """A rank has sent as much as it had received, which doubles."""
    return z3.If(distance < NUM_RANKS, distance, NUM_RANKS) - 1


def _halved(size: Any, rank: Any) -> Any:
    """A rank that stays has given away all but the chunks of its block, its leaf's among them."""
    start = START(number_of(rank), level_of(size))

    def first_chunk(of: Any) -> Any:
        return of + z3.If(of <= EXTRA, of, EXTRA)

    left = first_chunk(start + size) - first_chunk(start)
    return z3.If(stays(rank), NUM_RANKS - left, 0)


def _far_first(half: Any, rank: Any) -> Any:
    """Parts have gone on to distances that are multiples of this one, which is twice the variable."""
    return QUOTIENT(NUM_RANKS - 1, level_of(half) + 1)


def _near_first(half: Any, rank: Any) -> Any:
    """Parts of as many distances as are left have come back, of the greatest last."""
    return QUOTIENT(NUM_RANKS - 1, 1) - QUOTIENT(NUM_RANKS - 1, level_of(half) + 1)


def _handed_up(size: Any, rank: Any) -> Any:
    """Each rank but 0 has sent once, when it no longer leads its block."""
    return z3.If(z3.Or(rank == 0, leads(rank, size)), 0, 1)


def _handed_down(size: Any, rank: Any) -> Any:
    """Rank 0 has sent in each turn; another has received in one, and sent in others at most."""
    turns = CEILING - level_of(size)
    return z3.If(leads(rank, size), z3.If(rank == 0, turns, turns - 1), 0)


_HALF, _QUARTER = (z3.If(below <= CEILING, POWER(CEILING - below), 0) for below in (1, 2))
"""Half of the least power of two that is not below p, and a quarter of it."""


def _parts_handed_up(size: Any, rank: Any) -> Any:
    """Each rank but 0 has sent once, when it no longer leads its block, and no more than the busiest."""
    behind = NUM_RANKS - _HALF
    most = z3.If(behind > _QUARTER, behind, _QUARTER)
    return z3.If(z3.Or(rank == 0, leads(rank, size)), 0, most)


def _parts_handed_down(size: Any, rank: Any) -> Any:
    """A rank that leads has kept of the parts behind it those of its block at most."""
    behind = NUM_RANKS - rank
    return z3.If(leads(rank, size), behind - z3.If(size < behind, size, behind), 0)


def _from_root(formula: Sent) -> Sent:
    """Return *formula* of ranks that count from the root."""
    return lambda state, rank: formula(state, modulo(rank - ROOT, NUM_RANKS))


FORMULAS: Mapping[tuple[str, str], tuple[Sent, ...]] = {
    ("bruck", "all_gather"): (_bruck,),
    ("halving_doubling", "reduce_scatter"): (_halved,),
    ("pat", "all_gather"): (_far_first,),
    ("pat", "reduce_scatter"): (_near_first,),
    ("tree", "reduce"): (_from_root(_handed_up),),
    ("tree", "gather"): (_from_root(_parts_handed_up),),
    ("tree", "all_reduce"): (_handed_up, _handed_down),
    ("tree", "scatter"): (_from_root(_parts_handed_down),),
}
"""Of each loop of a program that sends, in order; of others, no formula is needed or known."""

ANY_RANKS = (z3.IntVal(1), z3.IntVal(0), ROOT, modulo(ROOT + 1, NUM_RANKS), NUM_RANKS - 1)
"""Of which one is the busiest, as a rule; the likeliest first."""

BUSIEST: Mapping[tuple[str, str], tuple[Any, ...]] = {
    ("double_binary_tree", "all_reduce"): (z3.IntVal(1),),
    ("double_binary_tree", "broadcast"): (ROOT,),
    ("double_binary_tree", "reduce"): (modulo(ROOT + 1, NUM_RANKS),),
    ("tree", "gather"): tuple(modulo(ROOT + place, NUM_RANKS) for place in (_HALF, _QUARTER)),
}
"""Where it is one of other ranks."""


def hints_for(name: str, collective: str) -> Hints:
    """Return what is known of the program of this name."""
    return Hints(FORMULAS.get((name, collective), ()), BUSIEST.get((name, collective), ANY_RANKS))
