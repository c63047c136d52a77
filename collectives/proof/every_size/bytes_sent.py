"""Chunks that ranks send, counted over symbols: the busiest rank sends the bytes that are declared.

How much a loop sends is known where a formula is known that its turns carry on, or where the declared bytes
have a sum of which each turn sends its part; where every turn sends the same, or as many chunks as the power
of two that it is at; where only the turn of the rank's own number sends, or each turn one of a few chunks.
Elsewhere no turn sends more than its message has, and perhaps only one turn sends anything: that is enough
where the busiest rank does so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import z3

from collectives.program import Cost, Send
from collectives.proof.every_size.functions import Ratio
from collectives.proof.every_size.loops import Doublings, Loop, Multiples
from collectives.proof.every_size.rows import Family, Row, solutions, turns_of
from collectives.proof.every_size.sending import Hints, Sent
from collectives.proof.every_size.solving import SOME_WORK
from collectives.proof.every_size.step import World
from collectives.proof.every_size.sums import Sum

FEW_CHUNKS = 16
"""Up to how many chunks are counted one by one."""


def sends_as_declared(world: World, rows: list[Row], declared: Cost, hints: Hints, sums: list[Sum]) -> bool:
    """Return whether it is proved that the busiest rank sends as much as is *declared*.

    Args:
        world: of the rows.
        rows: of the program.
        declared: over symbols.
        hints: of its loops that send, and which ranks may be the busiest.
        sums: those that are symbols in what is declared.
    """
    fraction: Any = declared.max_bytes_sent_fraction
    share = fraction.of(world.num_chunks) if isinstance(fraction, Ratio) else None
    if share is None:
        return False
    number, chunks = share

    def sent_by(rank: Any, *, at_most: bool) -> Any | None:
        try:
            return _Count(world, rank, hints.formulas, sums, at_most).of(rows)
        except _UnknownSumError:
            return None

    most = sent_by(world.rank, at_most=True)
    if most is None or not world.implies(number * most <= chunks, world.is_rank(world.rank), SOME_WORK):
        return False
    reached = []
    for rank in hints.busiest:
        sent = sent_by(rank, at_most=False)
        if sent is not None:
            reached.append(z3.And(*world.is_rank(rank), number * sent >= chunks))
            if world.implies(reached[-1], [], SOME_WORK):
                return True
    return len(reached) > 1 and world.implies(z3.Or(*reached), [], SOME_WORK)


class _UnknownSumError(Exception):
    """No rule tells how much a loop sends."""


@dataclass(frozen=True)
class _Count:
    """What one *rank* sends: *at_most* so much, or at least."""

    world: World
    rank: Any
    formulas: tuple[Sent, ...]
    sums: list[Sum]
    at_most: bool

    def of(self, rows: list[Row]) -> Any:
        """Return how many chunks it sends in *rows*.

        Raises:
            _UnknownSumError: nothing is known of that.
        """
        formulas = list(self.formulas)
        total = z3.IntVal(0)
        for turn in turns_of(rows):
            sends = [family for row in turn for family in row.families if family.kind is Send]
            if sends:
                loop = turn[0].loop
                total += self._here(
                    self._sent_in(sends, loop, formulas.pop(0) if loop and formulas else None)
                )
        return total

    def _sent_in(self, sends: list[Family], loop: Loop | None, formula: Sent | None) -> Any:
        """Return how many chunks *sends* are in all turns of *loop*."""
        if loop is not None and not any(family.variables for family in sends):
            added = sum(z3.If(self._here(family.when), self._here(family.length), 0) for family in sends)
            if formula is not None and self._goes_by(formula, added, loop):
                return formula(loop.seen(loop.last), self.rank)
            for declared in self.sums:
                if self._goes_with(declared, added, loop):
                    return declared.symbol
        return sum((self._sent(family, loop) for family in sends), start=z3.IntVal(0))

    def _sent_in_some_turns(self, added: Any, loop: Loop) -> Any:
        """Return how much is sent in *loop* at least: in its first turn and in its last two."""
        turns = loop.start, loop.stop - 1, loop.stop - 2
        there = [loop.holds(turns[0]), *(z3.And(loop.holds(turn), turn > turns[0]) for turn in turns[1:])]
        return sum(
            z3.If(so, z3.substitute(added, (loop.variable, turn)), 0)
            for so, turn in zip(there, turns, strict=True)
        )

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
        if not (self._holds(loop.turns >= 0, []) and self._holds(z3.Implies(when, length >= 0), facts)):
            raise _UnknownSumError

        def at(value: Any, claim: Any) -> Any:
            return z3.substitute(claim, (own, value))

        alike = z3.And(when == at(other, when), z3.Implies(when, length == at(other, length)))
        if self._holds(alike, [*facts, loop.holds(other)]):
            return at(loop.start, when), _times(at(loop.start, length), loop.turns)
        doubles = isinstance(loop, Doublings) and not z3.eq(length, at(other, length))
        as_far = z3.And(when == at(other, when), z3.Implies(when, length == loop.seen(own)))
        if doubles and self._holds(as_far, [*facts, loop.holds(other)]):
            return at(loop.start, when), loop.seen(loop.stop) - loop.seen(loop.start)
        if self._holds(z3.Implies(when, own == self.rank), facts):
            return z3.And(loop.holds(self.rank), at(self.rank, when)), at(self.rank, length)
        if not self.at_most:
            return z3.BoolVal(True), self._sent_in_some_turns(z3.If(when, length, 0), loop)
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
        number_where: dict[Any, int] = {}
        for chunk in range(num_chunks.as_long()):
            turns = solutions(self._here(family.chunk), loop.variable, z3.IntVal(chunk))
            if turns is None or len(turns) != 1:
                return None
            sent = z3.simplify(z3.substitute(self._here(family.when), (loop.variable, turns[0])))
            if z3.is_false(sent):
                continue
            if not (self.at_most or self._holds(z3.Implies(sent, loop.holds(turns[0])), [])):
                sent = z3.And(sent, loop.holds(turns[0]))
            number_where[sent] = number_where.get(sent, 0) + 1
        return sum((z3.If(sent, number, 0) for sent, number in number_where.items()), start=z3.IntVal(0))

    def _goes_by(self, formula: Sent, added: Any, loop: Loop) -> bool:
        """Return whether *formula* is proved to say how much is sent in *loop*, at least or at most."""

        def sent_before(state: Any) -> Any:
            return formula(loop.seen(state), self.rank)

        turn = loop.variable
        carried = self._bounds(sent_before(loop.after(turn)), sent_before(loop.before(turn)) + added)
        at_first = self._bounds(sent_before(loop.first), z3.IntVal(0))
        return self._holds(at_first, []) and self._holds(carried, [loop.holds(turn)])

    def _goes_with(self, declared: Sum, added: Any, loop: Loop) -> bool:
        """Return whether each turn of *loop* is proved to send what *declared* adds, at least or at most."""
        turn = loop.variable
        sent = self._bounds(declared.added_in(turn), added)
        return self._holds(declared.goes_over(loop), []) and self._holds(sent, [loop.holds(turn)])

    def _bounds(self, bound: Any, sent: Any) -> Any:
        return bound >= sent if self.at_most else bound <= sent

    def _here(self, value: Any) -> Any:
        return z3.substitute(value, (self.world.rank, self.rank))

    def _holds(self, claim: Any, facts: list[Any]) -> bool:
        facts = [*map(self._here, facts), *self.world.is_rank(self.rank)]
        return self.world.implies(self._here(claim), facts, SOME_WORK)


def _times(length: Any, turns: Any) -> Any:
    length, turns = z3.simplify(length), z3.simplify(turns)
    if not (z3.is_int_value(length) or z3.is_int_value(turns)):
        raise _UnknownSumError
    return length * turns
