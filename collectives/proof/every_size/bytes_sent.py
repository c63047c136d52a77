"""Chunks that ranks send, counted over symbols: the busiest rank sends the bytes that are declared.

How much a loop sends is known where every turn sends the same, where only that of the rank's own number sends
anything, where each turn sends another of a few chunks, or where a formula is known that turns carry on.
Elsewhere no turn sends more than its message has, and perhaps only one turn sends anything: that is enough
where the busiest rank does so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import z3

from collectives.program import Cost, Send
from collectives.proof.every_size.functions import Ratio
from collectives.proof.every_size.loops import Loop, Multiples
from collectives.proof.every_size.powers import NUM_RANKS, ROOT
from collectives.proof.every_size.rows import Family, Row, solutions, turns_of
from collectives.proof.every_size.solving import LITTLE_WORK
from collectives.proof.every_size.step import World
from collectives.proof.every_size.symbols import modulo

Sent = Callable[[Any, Any], Any]
"""Of (loop variable, number of ranks p): how many chunks any rank has sent in a loop before this turn."""


def _doubled(distance: Any, p: Any) -> Any:
    return z3.If(distance < p, distance, p) - 1


SENT: Mapping[tuple[str, str], Sent] = {("bruck", "all_gather"): _doubled}
"""Of the only loop of a program, where no other rule tells."""

FEW_CHUNKS = 16
"""Up to how many chunks are counted one by one."""


def sends_as_declared(world: World, rows: list[Row], declared: Cost, formula: Sent | None) -> bool:
    """Return whether it is proved that the busiest rank sends as much as is *declared*."""
    fraction: Any = declared.max_bytes_sent_fraction
    share = fraction.of(world.num_chunks) if isinstance(fraction, Ratio) else None
    if share is None:
        return False
    number, chunks = share
    candidates = [z3.IntVal(0), z3.IntVal(1), NUM_RANKS - 1, ROOT, modulo(ROOT + 1, NUM_RANKS)]
    try:
        most = _Count(world, world.rank, formula, at_most=True).of(rows)
        busiest = [_Count(world, rank, formula, at_most=False).of(rows) for rank in candidates]
    except _UnknownSumError:
        return False
    reached = z3.Or(*(number * sent >= chunks for sent in busiest))
    return world.implies(number * most <= chunks, world.is_rank(world.rank), LITTLE_WORK) and world.implies(
        reached, [], LITTLE_WORK
    )


class _UnknownSumError(Exception):
    """No rule tells how much a loop sends."""


@dataclass(frozen=True)
class _Count:
    """What one *rank* sends: *at_most* so much, or at least."""

    world: World
    rank: Any
    formula: Sent | None
    at_most: bool

    def of(self, rows: list[Row]) -> Any:
        """Return how many chunks it sends in *rows*.

        Raises:
            _UnknownSumError: nothing is known of that.
        """
        total = z3.IntVal(0)
        for turn in turns_of(rows):
            sends = [family for row in turn for family in row.families if family.kind is Send]
            if (loop := turn[0].loop) is not None and sends and self.formula is not None:
                total += self._by_formula(sends, loop, self.formula)
            else:
                total += sum((self._sent(family, loop) for family in sends), start=z3.IntVal(0))
        return self._here(total)

    def _sent(self, family: Family, loop: Loop | None) -> Any:
        when, length = self._here(family.when), self._here(family.length)
        facts = [loop.holds(loop.variable)] if loop else []
        for variable in family.variables:
            when, length = self._over(variable, when, length, facts)
        if loop is None:
            return z3.If(when, length, 0)
        by_chunk = self._by_chunk(family, loop) if not family.variables else None
        if by_chunk is not None:
            return by_chunk
        when, length = self._over(loop, when, length, [])
        return z3.If(when, length, 0)

    def _over(self, loop: Loop, when: Any, length: Any, facts: list[Any]) -> tuple[Any, Any]:
        """Return when something is sent in *loop*, and how much in all."""
        if isinstance(loop, Multiples):
            raise _UnknownSumError
        own, other = loop.variable, z3.FreshInt("v")
        facts = [*facts, loop.holds(own)]
        if not (self._holds(loop.turns >= 0, []) and self._holds(length >= 0, facts)):
            raise _UnknownSumError

        def at(value: Any, claim: Any) -> Any:
            return z3.substitute(claim, (own, value))

        alike = z3.And(when == at(other, when), z3.Implies(when, length == at(other, length)))
        if self._holds(alike, [*facts, loop.holds(other)]):
            return at(loop.start, when), _times(at(loop.start, length), loop.turns)
        if self._holds(z3.Implies(when, own == self.rank), facts):
            return z3.And(loop.holds(self.rank), at(self.rank, when)), at(self.rank, length)
        if not self.at_most:
            return z3.And(loop.holds(loop.start), at(loop.start, when)), at(loop.start, length)
        once = z3.Implies(z3.And(when, at(other, when)), own == other)
        if z3.is_int_value(length) and self._holds(once, [*facts, loop.holds(other)]):
            return z3.BoolVal(True), length
        return z3.BoolVal(True), _times(length, loop.turns)

    def _by_chunk(self, family: Family, loop: Loop) -> Any | None:
        """Return how many chunks are sent in *loop*, where each of a few is in one turn at most."""
        num_chunks = z3.simplify(self.world.num_slots)
        if not z3.is_int_value(num_chunks) or num_chunks.as_long() > FEW_CHUNKS:
            return None
        if not z3.eq(family.length, z3.IntVal(1)):
            return None
        total = z3.IntVal(0)
        for chunk in range(num_chunks.as_long()):
            turns = solutions(self._here(family.chunk), loop.variable, z3.IntVal(chunk))
            if turns is None or len(turns) != 1:
                return None
            there = z3.And(loop.holds(turns[0]), self._here(family.when))
            total += z3.If(z3.substitute(there, (loop.variable, turns[0])), 1, 0)
        return total

    def _by_formula(self, sends: list[Family], loop: Loop, formula: Sent) -> Any:
        """Return how many chunks are sent in *loop*, and prove that the *formula* says so."""

        def sent_before(state: Any) -> Any:
            return formula(loop.seen(state), self.world.num_ranks)

        turn = loop.variable
        if any(family.variables for family in sends):
            raise _UnknownSumError
        added = sum(z3.If(self._here(family.when), self._here(family.length), 0) for family in sends)
        follows = sent_before(loop.after(turn)) == sent_before(loop.before(turn)) + added
        inside = [loop.holds(turn)]
        if not (self._holds(sent_before(loop.first) == 0, []) and self._holds(follows, inside)):
            raise _UnknownSumError
        return sent_before(loop.last)

    def _here(self, value: Any) -> Any:
        return z3.substitute(value, (self.world.rank, self.rank))

    def _holds(self, claim: Any, facts: list[Any]) -> bool:
        facts = [*map(self._here, facts), *self.world.is_rank(self.rank)]
        return self.world.implies(self._here(claim), facts, LITTLE_WORK)


def _times(length: Any, turns: Any) -> Any:
    length, turns = z3.simplify(length), z3.simplify(turns)
    if not (z3.is_int_value(length) or z3.is_int_value(turns)):
        raise _UnknownSumError
    return length * turns
