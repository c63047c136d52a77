"""Invariants of loops whose distance doubles or halves: who holds what, by blocks of a power of two.

Where the number of ranks is no power of two, some ranks stand in for their neighbours.  What counts is then
a rank's number among those that stay, which is also that of the rank that it stands in for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import z3

from collectives.proof.every_size.demands import Contents, Held, of_owner, whole
from collectives.proof.every_size.powers import CORE, NUM_RANKS, POWER, ROOT, START, level_of
from collectives.proof.every_size.symbols import modulo

Invariant = Callable[[Any, Any], Held]
"""Of (size of the blocks, number of ranks p)."""

EXTRA = NUM_RANKS - CORE
"""How many ranks others stand in for."""


def number_of(rank: Any) -> Any:
    """Return which of those that stay *rank* is, or stands in for it."""
    hosts_before = (rank + 1) / 2
    return rank - z3.If(hosts_before <= EXTRA, hosts_before, EXTRA)


def stays(rank: Any) -> Any:
    """Return that nobody stands in for *rank*."""
    return z3.Or(rank >= 2 * EXTRA, rank % 2 == 1)


def _block(number: Any, size: Any) -> Any:
    """Return where the block of *size* numbers begins in which *number* lies."""
    return START(number, level_of(size))


def _share_block(one: Any, other: Any, size: Any) -> Any:
    return _block(one, size) == _block(other, size)


def _have_same_place(one: Any, other: Any, size: Any) -> Any:
    """Return that both numbers lie at the same place of their blocks."""
    return one - _block(one, size) == other - _block(other, size)


def _exchanged(size: Any, p: Any) -> Held:
    """A rank has all that the ranks of its block gave."""

    def holds(rank: Any, chunk: Any, q: Any, j: Any) -> Any:
        return z3.And(j == chunk, _share_block(number_of(q), number_of(rank), size))

    return Held(lambda rank, chunk: stays(rank), holds)


def _gathered(size: Any, p: Any) -> Held:
    """A rank has the chunks of the ranks of its block."""

    def filled(rank: Any, chunk: Any) -> Any:
        return z3.And(stays(rank), _share_block(number_of(chunk), number_of(rank), size))

    return Held(filled, of_owner)


def _halved(number_of_chunk: Callable[[Any], Any]) -> Invariant:
    """A rank has, of the chunks of its block, what the ranks gave that have its place in theirs."""

    def held(size: Any, p: Any) -> Held:
        def filled(rank: Any, chunk: Any) -> Any:
            return z3.And(stays(rank), _share_block(number_of_chunk(chunk), number_of(rank), size))

        def holds(rank: Any, chunk: Any, q: Any, j: Any) -> Any:
            return z3.And(j == chunk, _have_same_place(number_of(q), number_of(rank), size))

        return Held(filled, holds)

    return held


def _doubled(size: Any, p: Any) -> Held:
    """A rank has the chunks of its block whole."""

    def filled(rank: Any, chunk: Any) -> Any:
        return z3.And(stays(rank), _share_block(chunk, number_of(rank), size))

    return Held(filled, whole)


def leads(rank: Any, size: Any) -> Any:
    """Return that *rank* is the first of its block."""
    return _block(rank, size) == rank


def _of_first(rank: Any, chunk: Any, q: Any, j: Any) -> Any:
    return z3.And(q == 0, j == chunk)


def _led(contents: Contents) -> Invariant:
    """The first rank of each block has *contents*."""
    return lambda size, p: Held(lambda rank, chunk: leads(rank, size), contents)


def _handed_up(size: Any, p: Any) -> Held:
    """The first rank of each block has what its block gave."""
    return _led(lambda rank, chunk, q, j: z3.And(j == chunk, _block(q, size) == rank))(size, p)


def _parts_led(contents: Contents) -> Invariant:
    """The first rank of each block has *contents* of the parts of its block."""
    return lambda size, p: Held(
        lambda rank, chunk: z3.And(leads(rank, size), _share_block(chunk, rank, size)), contents
    )


def _nearest_first(size: Any, p: Any) -> Held:
    """The first ranks have what the root gave, as many as the next distance."""
    return Held(lambda rank, chunk: rank < size, _of_first)


def _by_level(invariant: Invariant) -> Invariant:
    """Return *invariant*, of a size, as one of a loop over levels."""
    return lambda level, p: invariant(POWER(level), p)


def from_root(invariant: Invariant, *, of_parts: bool = False) -> Invariant:
    """Return *invariant*, of ranks that count from the root; and of chunks, where these are *of_parts*."""

    def held(state: Any, p: Any) -> Held:
        counted = invariant(state, p)

        def place(rank: Any) -> Any:
            return modulo(rank - ROOT, p)

        def part(chunk: Any) -> Any:
            return place(chunk) if of_parts else chunk

        return Held(
            lambda rank, chunk: counted.filled(place(rank), part(chunk)),
            lambda rank, chunk, q, j: counted.holds(place(rank), part(chunk), place(q), part(j)),
        )

    return held


BLOCK_INVARIANTS: Mapping[tuple[str, str], tuple[Invariant, ...]] = {
    ("recursive_doubling", "all_reduce"): (_by_level(_exchanged),),
    ("recursive_doubling", "all_gather"): (_gathered,),
    ("halving_doubling", "all_reduce"): (_halved(lambda chunk: chunk), _doubled),
    ("halving_doubling", "reduce_scatter"): (_halved(number_of),),
    ("halving_doubling", "all_gather"): (_gathered,),
    ("tree", "broadcast"): (from_root(_led(_of_first)),),
    ("tree", "reduce"): (from_root(_handed_up),),
    ("tree", "all_reduce"): (_handed_up, _led(whole)),
    ("tree", "scatter"): (from_root(_parts_led(_of_first), of_parts=True),),
    ("tree", "gather"): (from_root(_parts_led(of_owner), of_parts=True),),
    ("gloo_tree", "broadcast"): (from_root(_nearest_first),),
}
"""Of each loop of a program, in order."""
