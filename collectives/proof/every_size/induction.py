"""Proof of an algorithm for every number of ranks, row by row and by induction over its loops.

A program is read once for all ranks (`reading`). In each row, for every rank:

- each send meets one receive of the same row and each receive one send, at most one per pair of ranks: so
  all ranks go from row to row together, messages match and nothing deadlocks;
- peers are other ranks, chunks are there, and no two writes of a chunk conflict;
- what is reduced is there, and no contribution is added where it already is.

What is held after a row follows from what was held before it. A loop keeps its invariant: it holds
before the first iteration, and an iteration carries it to the next. In the end every rank holds what the
collective demands. The declared number of steps is the number of rows.
"""

from __future__ import annotations

from typing import Any

import z3

from collectives.program import Algorithm, Send
from collectives.proof.every_size.comparison import compare
from collectives.proof.every_size.demands import AFTER, BEFORE, ONE_CHUNK_PER_RANK, Held
from collectives.proof.every_size.invariants import INVARIANTS
from collectives.proof.every_size.reading import Reader
from collectives.proof.every_size.rows import Family, Row
from collectives.proof.every_size.symbols import Assumptions, NotProvedError, term


def prove_every_size(algorithm: Algorithm) -> None:
    """Prove *algorithm*, with its parameters and rank 0 as the root, for every number of ranks from 2 on.

    Raises:
        NotProvedError: refuted, not readable by symbols, or more than the solver can decide.
    """
    reader = Reader()
    try:
        reader.read(algorithm)
        proof = _Induction(algorithm, reader)
        proof.run()
        compare(reader.rows, algorithm)
    except NotProvedError as error:
        raise NotProvedError(f"{algorithm}, {algorithm.collective}, every size: {error}") from error
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        raise NotProvedError(
            f"{algorithm}, {algorithm.collective}, every size: it cannot be read: {said}"
        ) from error


class _Induction:
    """The obligations of one program."""

    def __init__(self, algorithm: Algorithm, reader: Reader) -> None:
        self.algorithm = algorithm
        self.reader = reader
        self.p = reader.num_ranks
        self.num_chunks, num_scratch = (
            term(reader.copy(counted)(reader.number(self.p), **algorithm.arguments_of(counted)))
            for counted in (algorithm.chunks_for, algorithm.scratch_for)
        )
        self.num_slots = self.num_chunks + num_scratch
        if algorithm.parameters.get("root", 0) != 0:
            raise NotProvedError("its root is not rank 0")

    def run(self) -> None:
        """Discharge all obligations."""
        p, collective = self.p, self.algorithm.collective
        if collective in ONE_CHUNK_PER_RANK:
            self.claim("it has one chunk per rank", self.num_chunks == p)
        first = BEFORE[collective]
        there = self.num_chunks
        held = Held(
            lambda rank, chunk: z3.And(chunk < there, first.filled(rank, chunk)),
            lambda rank, chunk, q, j: z3.And(chunk < there, first.holds(rank, chunk, q, j)),
        )
        invariants = list(INVARIANTS.get((self.algorithm.name, collective), ()))
        for number, row in enumerate(self.reader.rows):
            where = f"row {number}"
            if row.loop is None:
                self.messages(row, where, [])
                held = self.after(row, held, where, [])
                continue
            if not invariants:
                raise NotProvedError(f"no invariant is known of its loop at {where}")
            invariant, loop = invariants.pop(0), row.loop
            inside = [loop.holds(loop.variable)]
            begun = invariant(loop.variable, p)
            self.claim(f"{where}: the loop is not empty backwards", loop.stop >= loop.start)
            self.equal(f"{where}: the invariant holds at first", held, invariant(loop.start, p), [])
            self.messages(row, where, inside)
            done = self.after(row, begun, where, inside)
            self.equal(f"{where}: an iteration keeps it", done, invariant(loop.variable + 1, p), inside)
            held = invariant(loop.stop, p)
        wanted = AFTER[collective]
        rank, chunk, q, j, facts = self.place()
        facts += [chunk < self.num_chunks, wanted.filled(rank, chunk)]
        self.claim("the end: everything is filled", held.filled(rank, chunk), facts)
        same = held.holds(rank, chunk, q, j) == wanted.holds(rank, chunk, q, j)
        self.claim("the end: every rank holds what it must", same, facts)
        self.steps()

    def claim(self, what: str, claim: Any, facts: list[Any] | None = None) -> None:
        """Prove *claim* for p from 2 on.

        Raises:
            NotProvedError: it is refuted, or not decided in time.
        """
        if not Assumptions(self.p >= 2, *(facts or [])).imply(claim):
            raise NotProvedError(f"not proved: {what}")

    def place(self) -> tuple[Any, Any, Any, Any, list[Any]]:
        """Return any rank, chunk, contributor q and chunk j that it contributes to, and their bounds."""
        rank, chunk, q, j = z3.FreshInt("r"), z3.FreshInt("c"), z3.FreshInt("q"), z3.FreshInt("j")
        facts = [*self.is_rank(rank), chunk >= 0, chunk < self.num_slots, *self.is_rank(q)]
        return rank, chunk, q, j, [*facts, j >= 0, j < self.num_chunks]

    def is_rank(self, rank: Any) -> list[Any]:
        """Return the bounds of a rank."""
        return [rank >= 0, rank < self.p]

    def equal(self, what: str, one: Held, other: Held, facts: list[Any]) -> None:
        """Prove that the same is held in both, everywhere."""
        rank, chunk, q, j, bounds = self.place()
        facts = [*facts, *bounds]
        self.claim(f"{what} (filled)", one.filled(rank, chunk) == other.filled(rank, chunk), facts)
        same = one.holds(rank, chunk, q, j) == other.holds(rank, chunk, q, j)
        self.claim(f"{what} (held)", same, facts)

    def at(self, family: Family, rank: Any) -> tuple[Any, Any, Any, list[Any]]:
        """Return (first, chunk, when, fresh variables) of *family* on *rank*."""
        return family.at(rank, self.reader.rank)

    def messages(self, row: Row, where: str, inside: list[Any]) -> None:
        """Prove that sends and receives of *row* match one to one, and stay within bounds."""
        rank = z3.FreshInt("r")
        facts = [*inside, *self.is_rank(rank)]
        sides = (
            [family for family in row.families if family.kind is Send],
            [family for family in row.families if not family.local and family.kind is not Send],
        )
        for family in row.families:
            first, chunk, when, _ = self.at(family, rank)
            fits = [chunk >= 0, chunk < self.num_slots, first >= 0]
            fits += [first < self.num_slots] if family.local else [first < self.p, first != rank]
            self.claim(f"{where}: ranks and chunks are there", z3.And(*fits), [*facts, when])
        for mine, theirs in (sides, sides[::-1]):
            for number, family in enumerate(mine):
                peer, _, when, fresh = self.at(family, rank)
                met = [self.meets(other, peer, rank) for other in theirs]
                self.claim(f"{where}: every message has two sides", z3.Or(*met), [*facts, when])
                for other in mine[number:]:
                    second, _, too, more = self.at(other, rank)
                    apart = other is not family or _differ(fresh, more)
                    self.claim(
                        f"{where}: one message from one rank to another",
                        peer != second,
                        [*facts, when, too, apart],
                    )

    def meets(self, family: Family, rank: Any, peer: Any) -> Any:
        """Return that *family* has an operation on *rank* whose peer is *peer*."""
        first, _, when, fresh = self.at(family, rank)
        return _exists(fresh, z3.And(when, first == peer))

    def after(self, row: Row, held: Held, where: str, inside: list[Any]) -> Held:
        """Return what is held after *row*, and prove that its writes do not conflict."""
        writes = [family for family in row.families if family.kind is not Send]
        sends = [family for family in row.families if family.kind is Send]
        rank, _, q, j, bounds = self.place()
        facts = [*inside, *bounds]

        def source_holds(family: Family, first: Any, rank: Any, q: Any, j: Any) -> Any:
            if family.local:
                return held.holds(rank, first, q, j)
            return self.sent(sends, first, rank, lambda chunk: held.holds(first, chunk, q, j))

        def source_filled(family: Family, first: Any, rank: Any) -> Any:
            if family.local:
                return held.filled(rank, first)
            return self.sent(sends, first, rank, lambda chunk: held.filled(first, chunk))

        for number, family in enumerate(writes):
            first, target, when, fresh = self.at(family, rank)
            added = source_holds(family, first, rank, q, j)
            if family.reduces:
                there = z3.And(held.filled(rank, target), source_filled(family, first, rank))
                self.claim(f"{where}: what is reduced is there", there, [*facts, when])
                twice = z3.And(held.holds(rank, target, q, j), added)
                self.claim(f"{where}: no contribution is added twice", z3.Not(twice), [*facts, when])
            for other in writes[number:]:
                begin, end, too, more = self.at(other, rank)
                apart = other is not family or _differ(fresh, more)
                both = [*facts, when, too, apart]
                if family.reduces and other.reduces:
                    again = z3.And(target == end, added, source_holds(other, begin, rank, q, j))
                    self.claim(f"{where}: no contribution is added twice", z3.Not(again), both)
                else:
                    self.claim(f"{where}: no two writes conflict", target != end, both)
            for other in (other for other in writes if other.local):
                begin, _, too, _ = self.at(other, rank)
                self.claim(
                    f"{where}: nothing is copied that is written", begin != target, [*facts, when, too]
                )

        def holds(rank: Any, chunk: Any, q: Any, j: Any) -> Any:
            value = held.holds(rank, chunk, q, j)
            for family in writes:
                first, target, when, fresh = self.at(family, rank)
                here = z3.And(when, target == chunk)
                comes = _exists(fresh, z3.And(here, source_holds(family, first, rank, q, j)))
                value = z3.Or(value, comes) if family.reduces else z3.If(_exists(fresh, here), comes, value)
            return value

        def filled(rank: Any, chunk: Any) -> Any:
            value = held.filled(rank, chunk)
            for family in writes:
                if family.reduces:
                    continue
                first, target, when, fresh = self.at(family, rank)
                here = z3.And(when, target == chunk)
                comes = _exists(fresh, z3.And(here, source_filled(family, first, rank)))
                value = z3.If(_exists(fresh, here), comes, value)
            return value

        return Held(filled, holds)

    def sent(self, sends: list[Family], sender: Any, rank: Any, said: Any) -> Any:
        """Return what *said* says of the chunk that *sender* sends to *rank*."""
        options = []
        for family in sends:
            peer, chunk, when, fresh = self.at(family, sender)
            options.append(_exists(fresh, z3.And(when, peer == rank, said(chunk))))
        return z3.Or(*options)

    def steps(self) -> None:
        """Prove that the rows with messages are as many as the declared steps."""
        declared = self.algorithm.declared_cost
        if declared is None:
            return
        cost = self.reader.copy(declared)(self.reader.number(self.p), **self.algorithm.arguments_of(declared))
        rows = z3.IntVal(0)
        for row in self.reader.rows:
            if any(not family.local for family in row.families):
                rows += row.loop.stop - row.loop.start if row.loop else 1
        self.claim("its declared number of steps is that of its rows", term(cost.num_steps) == rows)


def _differ(one: list[Any], other: list[Any]) -> Any:
    return z3.Or(*(a != b for a, b in zip(one, other, strict=True)))


def _exists(variables: list[Any], claim: Any) -> Any:
    return z3.Exists(variables, claim) if variables else claim
