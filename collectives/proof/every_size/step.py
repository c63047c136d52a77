"""Obligations of one step of all ranks, and what is held after it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import gcd
from typing import Any

import z3

from collectives.program import Send
from collectives.proof.every_size.bit_sums import BIT_SUM, BitSum, is_multiple
from collectives.proof.every_size.demands import Held
from collectives.proof.every_size.rows import Family, Instance, Row
from collectives.proof.every_size.solving import LITTLE_WORK, MOST_WORK
from collectives.proof.every_size.symbols import Assumptions, NotProvedError
from collectives.proof.every_size.terms import terms_in

Said = Callable[[Any, Any], Any]
"""Of a rank and a chunk: something that is so or not."""

Written = Callable[[Any], tuple[Any, Any, Any]]
"""Of a chunk: in which of two cases it is, and for which value of its variable a family writes it in both."""


@dataclass(frozen=True)
class World:
    """Symbols of the number of ranks and of the rank, and of how many chunks there are.

    Attributes:
        known: what holds of them.
        bit_sum: the sum over powers of two that the program takes, if any.
        products: whether there may be products of symbols.
        chunks_differ: whether any chunk may have another length than any other, whatever the collective.
        chunks_per_part: where the buffer is one part for each rank, else 0; the last of a part, or of a
            buffer that is not in parts, may be shorter.
    """

    num_ranks: Any
    rank: Any
    num_chunks: Any
    num_slots: Any
    chunks_per_part: int
    known: list[Any]
    bit_sum: BitSum | None = None
    chunks_differ: bool = False
    products: bool = False

    def claim(self, what: str, claim: Any, facts: list[Any]) -> None:
        """Prove *claim* where *facts* hold.

        Raises:
            NotProvedError: it is refuted, or not decided in time.
        """
        if not self.implies(claim, facts):
            raise NotProvedError(f"not proved: {what}")

    def claim_known(
        self, what: str, held: Held, known: Held, facts: list[Any], written: Written | None = None
    ) -> None:
        """Prove that *held* is as *known*, wherever that knows of something, in both cases *written*."""
        rank, chunk, q, j, bounds = self.place()
        facts = [*facts, *bounds, known.filled(rank, chunk)]
        self.claim(f"{what} (filled)", held.filled(rank, chunk), facts)
        same = held.holds(rank, chunk, q, j) == known.holds(rank, chunk, q, j)
        if written is None:
            self.claim(f"{what} (held)", same, facts)
            return
        case, *_ = written(chunk)
        for so in (z3.BoolVal(True), z3.BoolVal(False)):
            in_case = z3.substitute(same, (case, so))
            self.claim(f"{what} (held)", in_case, [*facts, case == so])

    def implies(self, claim: Any, facts: list[Any], work: int = MOST_WORK) -> bool:
        """Return whether *claim* is proved where *facts* hold, with so much *work*."""
        of_sums = self.bit_sum.facts_about([claim, *facts]) if self.bit_sum else []
        return Assumptions(*self.known, *facts, *of_sums, products=self.products).imply(claim, work)

    def is_rank(self, rank: Any) -> list[Any]:
        """Return the bounds of a rank."""
        return [rank >= 0, rank < self.num_ranks]

    def place(self) -> tuple[Any, Any, Any, Any, list[Any]]:
        """Return any rank, chunk, contributor q and chunk j that it contributes to, and their bounds."""
        rank, chunk, q, j = (z3.FreshInt(name) for name in "rcqj")
        facts = [*self.is_rank(rank), chunk >= 0, chunk < self.num_slots, *self.is_rank(q)]
        return rank, chunk, q, j, [*facts, j >= 0, j < self.num_chunks]


class SymbolicStep:
    """One *row*: its messages and writes, where *inside* holds, after which *held* holds no longer.

    Where a step writes blocks of chunks, *written* tells which of them has a chunk.
    """

    def __init__(
        self,
        world: World,
        row: Row,
        where: str,
        inside: list[Any],
        written: Written | None = None,
    ) -> None:
        self.world = world
        self.families = row.families
        self.where = where
        self.inside = inside
        self.sends = [family for family in row.families if family.kind is Send]
        self.receives = [family for family in row.families if not family.local and family.kind is not Send]
        self.writes = [family for family in row.families if family.kind is not Send]
        self.written = written
        self.groups: list[tuple[list[Family], list[Family]]] = []

    def claim(self, what: str, claim: Any, facts: list[Any]) -> None:
        """Prove *claim* of this step."""
        self.world.claim(f"{self.where}: {what}", claim, [*self.inside, *facts])

    def at(self, family: Family, rank: Any) -> Instance:
        """Return the operation of *family* on *rank*."""
        return family.at(rank, self.world.rank)

    def check_operations(self) -> None:
        """Prove that ranks and chunks are there, and that chunks may be shorter only where all are."""
        world, rank = self.world, z3.FreshInt("r")
        for family in self.families:
            own = self.at(family, rank)
            facts = [*world.is_rank(rank), own.when]
            for number in (number for number in own.fresh if _is_summed(number, own)):
                known = world.bit_sum and world.bit_sum.enumeration
                inside = is_multiple(number, z3.IntVal(known.lowest)) if known else z3.BoolVal(False)
                self.claim("no two numbers have the same sum", inside, facts)
            self.claim("there is something to move", own.length >= 1, facts)
            self.claim("chunks are there", self._fits(own.chunk, own.length), facts)
            if family.local:
                self.claim("chunks are there", self._fits(own.first, own.length), facts)
                self.claim(
                    "a chunk goes where one of its length is", self._may_move(own.first, own.chunk), facts
                )
            else:
                there = z3.And(own.first >= 0, own.first < world.num_ranks, own.first != rank)
                self.claim("the peer is another rank", there, facts)

    def _fits(self, chunk: Any, length: Any) -> Any:
        end, border = self.world.num_slots, self.world.num_chunks
        return z3.And(chunk >= 0, chunk + length <= end, z3.Or(chunk >= border, chunk + length <= border))

    def _may_move(self, source: Any, chunk: Any) -> Any:
        if self.world.chunks_per_part and not self.world.chunks_differ:
            return (source - chunk) % self.world.chunks_per_part == 0
        there = self.world.num_chunks
        return z3.Or(there == 1, *(source - chunk == apart for apart in (0, there, -there)))

    def check_messages(self) -> None:
        """Prove that sends and receives match one to one.

        Messages from one rank to another match in the order of the program.  So sends and receives are
        looked at in groups of neighbours, as many of either: what a group sends, the group of its number
        receives, and in a group there is at most one message from one rank to another.
        """
        both = gcd(len(self.sends), len(self.receives)) or 1
        work = LITTLE_WORK if both > 1 else MOST_WORK
        for number in (number for number in range(both, 0, -1) if both % number == 0):
            self.groups = list(zip(_split(self.sends, number), _split(self.receives, number), strict=True))
            if all(self._all_met(*sides, work) for group in self.groups for sides in (group, group[::-1])):
                break
        else:
            raise NotProvedError(f"not proved: {self.where}: every message has two sides")
        rank = z3.FreshInt("r")
        for side in (side for group in self.groups for side in group):
            for number, family in enumerate(side):
                own = self.at(family, rank)
                for other in side[number:]:
                    too = self.at(other, rank)
                    facts = [*self.world.is_rank(rank), own.when, too.when]
                    apart = own.is_other(too) if other is family else True
                    once = own.first != too.first
                    self.claim("one message from one rank to another", once, [*facts, apart])

    def _all_met(self, families: list[Family], others: list[Family], work: int) -> bool:
        return all(self._met(family, others, work) for family in families)

    def _met(self, family: Family, others: list[Family], work: int) -> bool:
        """Return whether each operation of *family* has its other side, of its length, in *others*."""
        rank = z3.FreshInt("r")
        own = self.at(family, rank)
        sides = [self.at(other, own.first) for other in others]
        met = [
            side.is_there(z3.And(side.first == rank, side.length == own.length), side.first, rank)
            for side in sides
        ]
        facts = [*self.inside, *self.world.is_rank(rank), own.when]
        return self.world.implies(z3.Or(*met), facts, work)

    def after(self, held: Held) -> Held:
        """Return what is held after the step, of what was *held* before, and prove that it is in order."""
        self.check_operations()
        self.check_messages()
        self._check_writes(held)

        def holds(rank: Any, chunk: Any, q: Any, j: Any) -> Any:
            value = held.holds(rank, chunk, q, j)
            for family in self.writes:
                comes, here = self._arrives(family, rank, chunk, lambda who, c: held.holds(who, c, q, j))
                value = z3.Or(value, comes) if family.reduces else z3.If(here, comes, value)
            return value

        def filled(rank: Any, chunk: Any) -> Any:
            value = held.filled(rank, chunk)
            for family in self.writes:
                if not family.reduces:
                    comes, here = self._arrives(family, rank, chunk, held.filled)
                    value = z3.If(here, comes, value)
            return value

        return Held(filled, holds)

    def _arrives(self, family: Family, rank: Any, chunk: Any, said: Said) -> tuple[Any, Any]:
        """Return that *family* brings *chunk* something of which *said* holds, and that it writes it."""
        own = self.at(family, rank)
        source = self._source(family, own, rank, chunk, said)
        claims = z3.And(own.covers(chunk), source), own.covers(chunk)
        if self.written and own.fresh:
            there = [(own.fresh[0], z3.If(*self.written(chunk)))]
            comes, here = (z3.substitute(claim, *there) for claim in claims)
            return comes, here
        part = own.chunk if z3.eq(own.length, z3.IntVal(1)) else None
        comes, here = (own.is_there(claim, part, chunk) for claim in claims)
        return comes, here

    def _source(self, family: Family, own: Instance, rank: Any, chunk: Any, said: Said) -> Any:
        """Return what is *said* of the place from which *own*, of *family*, brings *chunk* to *rank*."""
        offset = chunk - own.chunk
        if family.local:
            return said(rank, own.first + offset)
        senders = self._senders_to(family)
        options = []
        for sender in senders:
            sent = self.at(sender, own.first)
            claim = z3.And(sent.first == rank, said(own.first, sent.chunk + offset))
            options.append(sent.is_there(claim, sent.first, rank))
        return z3.Or(*options)

    def _senders_to(self, family: Family) -> list[Family]:
        """Return the sends of which *family* receives."""
        return next(sends for sends, receives in self.groups if family in receives)

    def _check_writes(self, held: Held) -> None:
        """Prove that writes do not conflict, and that contributions are added once, to what is there."""
        rank, chunk, q, j, facts = self.world.place()
        for number, family in enumerate(self.writes):
            own = self.at(family, rank)
            here = [*facts, own.covers(chunk)]
            if self.written and own.fresh:
                told = own.fresh[0] == z3.If(*self.written(chunk))
                self.claim("a chunk is of the block that is known", told, here)
            added = self._source(family, own, rank, chunk, lambda who, c: held.holds(who, c, q, j))
            if not family.local:
                self._check_lengths(family, own, rank)
            if family.reduces:
                there = self._source(family, own, rank, chunk, held.filled)
                self.claim("what is reduced is there", z3.And(held.filled(rank, chunk), there), here)
                twice = z3.And(held.holds(rank, chunk, q, j), added)
                self.claim("no contribution is added twice", z3.Not(twice), here)
            for other in self.writes[number:]:
                too = self.at(other, rank)
                both = [*here, too.covers(chunk), own.is_other(too) if other is family else True]
                if family.reduces and other.reduces:
                    again = self._source(other, too, rank, chunk, lambda who, c: held.holds(who, c, q, j))
                    self.claim("no contribution is added twice", z3.Not(z3.And(added, again)), both)
                else:
                    self.claim("no two writes conflict", z3.BoolVal(False), both)

    def _check_lengths(self, family: Family, own: Instance, rank: Any) -> None:
        """Prove that what *own* receives was sent from chunks of the same length."""
        if self.world.chunks_per_part == 1 and not self.world.chunks_differ:
            return
        senders = self._senders_to(family)
        for sender in senders:
            sent = self.at(sender, own.first)
            facts = [*self.world.is_rank(rank), own.when, sent.when, sent.first == rank]
            self.claim(
                "a chunk goes where one of its length is", self._may_move(sent.chunk, own.chunk), facts
            )


def _is_summed(number: Any, own: Instance) -> bool:
    """Return whether *own* says something of the sum over the powers of two in *number*."""
    summed = BIT_SUM(number)
    return any(term.eq(summed) for part in own.parts for term in terms_in(part))


def _split(families: list[Family], number: int) -> list[list[Family]]:
    """Return *families* in so many parts of one length."""
    length = len(families) // number
    return [families[part * length : (part + 1) * length] for part in range(number)]
