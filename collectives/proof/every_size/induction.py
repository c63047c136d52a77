"""Proof of an algorithm for every number of ranks, row by row and by induction over its loops.

A program is read once for all ranks (`reading`). In each row, for every rank:

- each send meets one receive of the same row and each receive one send, so all ranks go from row to row
  together, messages match and nothing deadlocks;
- peers are other ranks, chunks are there, and no two writes of a chunk conflict;
- what is reduced is there, and no contribution is added where it already is (`step`).

What is held after a row follows from what was held before it. A loop keeps its invariant: it holds
before the first iteration, and an iteration carries it to the next. In the end every rank holds what the
collective demands. The declared number of steps is the number of rows, and the
declared bytes are those that the busiest rank sends, where these can be counted (`bytes_sent`).

A program made of others is proved of their contracts (`composition`).

A program that goes one way or the other is read and proved twice: for powers of two, and for other sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import z3

from collectives.program import Algorithm
from collectives.proof.every_size.bytes_sent import sends_as_declared
from collectives.proof.every_size.comparison import compare
from collectives.proof.every_size.composition import has_parts
from collectives.proof.every_size.composition_proof import check_steps_of_part, prove_composition
from collectives.proof.every_size.demands import AFTER, BEFORE, EQUAL_PARTS, Held, in_parts
from collectives.proof.every_size.invariants import ENUMERATIONS, INVARIANTS, Invariant, Turn
from collectives.proof.every_size.loops import Loop
from collectives.proof.every_size.powers import CORE, NUM_RANKS
from collectives.proof.every_size.reading import Reader
from collectives.proof.every_size.rows import Row, turns_of
from collectives.proof.every_size.sending import hints_for
from collectives.proof.every_size.step import SymbolicStep, World
from collectives.proof.every_size.symbols import BranchError, NotProvedError, term
from collectives.proof.every_size.trees import known_around

EVERY_SIZE, POWERS_OF_TWO = "every size", "2^k"


@dataclass(frozen=True)
class Scope:
    """What an algorithm is proved for.

    Attributes:
        sizes: ``every size``, from 2 on, or ``2^k``: powers of two, where others are not proved.
        with_bytes: whether the bytes that it declares are proved for these too.
    """

    sizes: str
    with_bytes: bool


def scope_of(algorithm: Algorithm) -> Scope:
    """Prove *algorithm*, with its parameters and any rank as the root, and return for what.

    Raises:
        NotProvedError: refuted, not readable by symbols, or more than the solver can decide.
    """
    if has_parts(algorithm):
        _prove_composed(algorithm)
        return Scope(EVERY_SIZE, with_bytes=False)
    try:
        return Scope(EVERY_SIZE, _prove(algorithm, []))
    except BranchError:
        of_powers = _prove(algorithm, [NUM_RANKS == CORE])
        try:
            of_others = _prove(algorithm, [NUM_RANKS != CORE])
        except NotProvedError:
            return Scope(POWERS_OF_TWO, of_powers)
    return Scope(EVERY_SIZE, of_powers and of_others)


def _prove(
    algorithm: Algorithm, case: list[Any], *, embedded: bool = False, steps_count: bool = False
) -> bool:
    """Prove *algorithm* in a *case*, and return whether its bytes are.

    Where it is *embedded*, its chunks may be of any lengths; where *steps_count*, what it is a part of
    declares its steps by those of its parts.
    """
    with _named(algorithm):
        reader = Reader(case)
        reader.read(algorithm)
        proof = _Induction(algorithm, reader, embedded)
        proof.run()
        if steps_count:
            check_steps_of_part(algorithm, reader.rows)
        compare(reader.rows, algorithm, case, reader.functions)
        return proof.sends_as_declared


def _prove_composed(algorithm: Algorithm) -> None:
    """Prove *algorithm* of its parts, and those by themselves: for every size, and for one rank."""
    with _named(algorithm):
        for part in prove_composition(algorithm):
            _prove(part, [], embedded=True, steps_count=algorithm.declared_cost is not None)
            if next(part.steps(0, 1), None) is not None:
                raise NotProvedError(f"its part {part} takes steps on one rank")


@contextmanager
def _named(algorithm: Algorithm) -> Iterator[None]:
    """Raise what is raised as a proof that failed of *algorithm*."""
    try:
        yield
    except NotProvedError as error:
        raise type(error)(f"{algorithm}, {algorithm.collective}, every size: {error}") from error
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        raise NotProvedError(
            f"{algorithm}, {algorithm.collective}, every size: it cannot be read: {said}"
        ) from error


class _Induction:
    """The obligations of one program."""

    def __init__(self, algorithm: Algorithm, reader: Reader, embedded: bool) -> None:
        self.algorithm = algorithm
        self.reader = reader
        self.sends_as_declared = False
        num_chunks, num_scratch = (
            term(reader.copy(counted)(reader.number(reader.num_ranks), **algorithm.arguments_of(counted)))
            for counted in (algorithm.chunks_for, algorithm.scratch_for)
        )
        self.world = World(
            reader.num_ranks,
            reader.rank,
            num_chunks,
            num_chunks + num_scratch,
            chunks_per_part=_in_one_part(num_chunks) if algorithm.collective in EQUAL_PARTS else 0,
            known=[*reader.case, *reader.knowledge],
            chunks_differ=embedded,
            products=reader.assumptions.products,
        )
        if reader.bit_sum is not None:
            self.world = replace(self.world, bit_sum=reader.bit_sum)
            if enumeration := ENUMERATIONS.get((algorithm.name, algorithm.collective)):
                self.world = replace(self.world, bit_sum=reader.bit_sum.enumerating(enumeration))

    def run(self) -> None:
        """Discharge all obligations."""
        world, collective = self.world, self.algorithm.collective
        before, after = BEFORE[collective], AFTER[collective]
        world.claim("its buffer has chunks", world.num_chunks >= 1, [])
        if own := world.chunks_per_part:
            world.claim("its parts are equal", world.num_chunks == own * world.num_ranks, [])
            before, after = in_parts(before, own), in_parts(after, own)
        held = self.in_buffer(before)
        invariants = list(INVARIANTS.get((self.algorithm.name, collective), ()))
        for number, rows in enumerate(turns_of(self.reader.rows)):
            where, loop = f"row {number}", rows[0].loop
            if loop is None:
                held = SymbolicStep(world, rows[0], where, []).after(held)
            elif invariants:
                held = self.through_loop(rows, loop, where, held, invariants.pop(0))
            else:
                raise NotProvedError(f"no invariant is known of its loop at {where}")
        world.claim_known("the end: every rank holds what it must", held, self.in_buffer(after), [])
        self.check_cost()

    def in_buffer(self, contract: Held) -> Held:
        """Return what *contract* says of the buffer, and nothing in scratch."""
        there = self.world.num_chunks
        return Held(
            lambda rank, chunk: z3.And(chunk < there, contract.filled(rank, chunk)),
            lambda rank, chunk, q, j: z3.And(chunk < there, contract.holds(rank, chunk, q, j)),
        )

    def through_loop(
        self, rows: list[Row], loop: Loop, where: str, held: Held, known: Invariant | Turn
    ) -> Held:
        """Return what is held after all turns of *loop*, and prove that each keeps its invariant."""
        hint = known if isinstance(known, Turn) else Turn(known)
        if len(rows) != 1 + len(hint.between):
            raise NotProvedError(f"a turn of its loop at {where} has {len(rows)} steps")

        def held_in(state: Any) -> Held:
            return hint.invariant(loop.seen(state), self.world.num_ranks)

        self.world.claim(f"{where}: the loop does not end before it begins", loop.stop >= loop.start, [])
        self.world.claim_known(f"{where}: the invariant holds at first", held, held_in(loop.first), [])
        turn, inside = loop.variable, [loop.holds(loop.variable)]
        now = held_in(loop.before(turn))
        for row, follows in zip(rows[:-1], hint.between, strict=True):
            written = partial(follows.written, loop.seen(turn))
            done = SymbolicStep(self.world, row, where, inside, written).after(now)
            now = follows.held(loop.seen(turn), self.world.num_ranks)
            self.world.claim_known(f"{where}: what is known within a turn", done, now, inside, written)
        done = SymbolicStep(self.world, rows[-1], where, inside).after(now)
        self.world.claim_known(
            f"{where}: a turn keeps the invariant", done, held_in(loop.after(turn)), inside
        )
        return held_in(loop.last)

    def check_cost(self) -> None:
        """Prove that the rows with messages are as many as the declared steps, and try the declared bytes."""
        declared = self.algorithm.declared_cost
        if declared is None:
            return
        num_ranks = self.reader.number(self.world.num_ranks)
        cost = self.reader.copy(declared)(num_ranks, **self.algorithm.arguments_of(declared))
        rows = z3.IntVal(0)
        for row in self.reader.rows:
            if any(not family.local for family in row.families):
                rows += row.loop.turns if row.loop else 1
        self.world.claim("its declared number of steps is that of its rows", term(cost.num_steps) == rows, [])
        hints = hints_for(self.algorithm.name, self.algorithm.collective)
        known = [*self.reader.knowledge, *self.reader.known_of_both]
        around = known_around((self.world.rank, *hints.busiest), known)
        world = replace(self.world, known=[*self.reader.case, *around])
        self.sends_as_declared = sends_as_declared(world, self.reader.rows, cost, hints, self.reader.sums)


def _in_one_part(num_chunks: Any) -> int:
    """Return how many chunks there would be of one rank, which is how many each has if all have as many."""
    of_one = z3.simplify(z3.substitute(num_chunks, (NUM_RANKS, z3.IntVal(1))))
    if not (z3.is_int_value(of_one) and of_one.as_long() >= 1):
        raise NotProvedError(f"it divides the buffer into {num_chunks} chunks")
    return int(of_one.as_long())
