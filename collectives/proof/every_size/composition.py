"""Programs made of other programs: read with a contract in place of each part, and proved of the contracts.

The composed program runs on symbols, and so does the code that embeds its parts.  A part itself is not run:
in its place stands one message of it, from any of its ranks, of any of its chunks.  What the embedding makes
of that message tells which ranks and which chunks the part works on.  What the part does there is its
contract, because it is proved for every number of ranks by itself, and for one.

Of each part, for every rank:

- its ranks are ranks, each at its own number, and all of them see the same ones, on the same chunks;
- parts side by side have different chunks, and go up in them, so that their messages match in order;
- what it demands is there, and it adds no contribution that is there already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import z3

from collectives.algorithms.shared.halves import Halves
from collectives.program import Algorithm, Send
from collectives.proof.every_size.functions import Ratio
from collectives.proof.every_size.products import Multiples, by_choice, simple, times
from collectives.proof.every_size.rows import Family
from collectives.proof.every_size.symbols import Assumptions, NotProvedError, Number, term
from collectives.proof.every_size.terms import terms_in

COMPOSABLE = ("all_reduce", "reduce_scatter", "all_gather")
"""Collectives of parts: those that leave every contribution in the chunk that it was made to."""


@dataclass(frozen=True)
class Part:
    """A part as it is called: by the rank at *index* of *size* ranks.

    Attributes:
        num_chunks: into how many chunks it divides what it works on.
        peer, chunk, length: of the message that stands for it.
    """

    algorithm: Algorithm
    index: Any
    size: Any
    num_chunks: Any
    peer: Any
    chunk: Any
    length: Any


@dataclass
class Parts:
    """The parts of a program, in the place of each of which it is given a `StandIn`.

    Attributes:
        parameters: the symbols on which the size of a part may depend; all ranks have the same.
    """

    number: Callable[[Any], Number]
    assumptions: Assumptions
    copy: Callable[[Any], Any]
    parameters: tuple[Any, ...]
    kinds: dict[tuple[Any, ...], type] = field(default_factory=dict)

    def stand_in(self, value: Any) -> Any:
        """Return *value*, a parameter of the program, with stand-ins for the parts that it names."""
        if isinstance(value, Halves):
            return Halves(*map(self.stand_in, value.parts))
        if not isinstance(value, Algorithm):
            return value
        fields = {name: getattr(value, name) for name in Algorithm.__dataclass_fields__}
        fields |= {name: self.copy(fields[name]) for name in ("chunks_for", "scratch_for", "declared_cost")}
        return StandIn(**fields, stands_for=value, parts=self)

    def kind(self, stand_in: StandIn, algorithm: Algorithm, index: Any, size: Any) -> type:
        """Return the kind of operation that stands for *algorithm*, called by *index* of *size*."""
        key = (id(algorithm.program), simple(term(index)), simple(term(size)))
        if key not in self.kinds:
            chunks = term(stand_in.num_chunks(size))
            peer, chunk, length = (z3.FreshInt(name) for name in ("peer", "chunk", "length"))
            stand_in.num_scratch_chunks(size)
            if not _symbols_in(term(size)) <= set(self.parameters):
                raise NotProvedError(f"its part {algorithm} has {size} ranks, which depends on the rank")
            there = z3.And(term(size) >= 1, chunks >= 1)
            if not self.assumptions.imply(there):
                raise NotProvedError(f"its part {algorithm} has {size} ranks and {chunks} chunks")
            bounds = [peer >= 0, peer < term(size), chunk >= 0, chunk < chunks]
            self.assumptions.multiples.known += [*bounds, length >= 1, length <= chunks - chunk]
            part = Part(algorithm, term(index), term(size), chunks, peer, chunk, length)
            self.kinds[key] = type("Embedded", (Send,), {"part": part})
        return self.kinds[key]


@dataclass(frozen=True)
class StandIn(Algorithm):
    """A part of a program, which yields one message that stands for all that it does."""

    stands_for: Algorithm | None = None
    parts: Parts | None = None

    def num_chunks(self, world_size: int) -> int:
        """Return into how many chunks it divides what it works on."""
        number: int = self.chunks_for(world_size, **self.arguments_of(self.chunks_for))
        return number

    def num_scratch_chunks(self, world_size: int) -> int:
        """Return 0, where it needs no scratch."""
        number = self.scratch_for(world_size, **self.arguments_of(self.scratch_for))
        if not isinstance(number, int) or number != 0:
            raise NotProvedError(f"its part {self} needs scratch")
        return 0

    def steps(self, rank: int, world_size: int) -> Iterator[Any]:
        """Yield one message of as many chunks as the busiest rank is declared to send."""
        assert self.parts is not None
        declared = self.cost(world_size)
        fraction: Any = declared.max_bytes_sent_fraction if declared else None
        share = fraction.of(term(self.num_chunks(world_size))) if isinstance(fraction, Ratio) else None
        if share is None or share[0] != 1:
            raise NotProvedError(f"nothing is known of what its part {self} sends")
        yield (Send(0, 0, self.parts.number(share[1])),)  # type: ignore[arg-type]

    def __call__(self, rank: int, world_size: int, **parameters: Any) -> Iterator[Any]:
        """Yield the message."""
        assert self.parts is not None
        assert self.stands_for is not None
        kind = self.parts.kind(self, self.stands_for, rank, world_size)
        number = self.parts.number
        part: Part = kind.part  # type: ignore[attr-defined]
        yield (kind(number(part.peer), number(part.chunk), number(part.length)),)


@dataclass(frozen=True)
class Embedded:
    """A part on one rank, for fresh symbols in place of the variables of its family.

    Attributes:
        size: how many ranks take part.
        index: the number of this one.
        start: the first of its chunks, in those of the program, and *stop*, where they end.
        width: of how many of those each of its own chunks consists.
        num_chunks: how many own chunks it has.
        when: that this rank takes part.
        rank_of: of a number: which rank that is.
        fresh: the symbols.
        in_order: that its own chunks, and messages of several of them, are one after another from the start.
    """

    size: Any
    index: Any
    start: Any
    width: Any
    num_chunks: Any
    stop: Any
    when: Any
    rank_of: Callable[[Any], Any]
    fresh: list[Any]
    in_order: Any

    @classmethod
    def at(
        cls, family: Family, rank: Any, symbolic_rank: Any, values: list[Any], multiples: Multiples
    ) -> Embedded:
        """Return the part that *family* says on *rank*, for these *values* of its variables."""
        part = part_of(family)
        swap = [(symbolic_rank, rank)]
        swap += [(loop.variable, value) for loop, value in zip(family.variables, values, strict=True)]

        def here(value: Any, *more: tuple[Any, Any]) -> Any:
            return z3.substitute(value, *swap, *more)

        start = here(family.chunk, (part.chunk, z3.IntVal(0)))
        width = here(family.length, (part.length, z3.IntVal(1)))
        inside = [loop.holds(value) for loop, value in zip(family.variables, values, strict=True)]
        return cls(
            here(part.size),
            here(part.index),
            start,
            width,
            part.num_chunks,
            start + by_choice(lambda value: multiples.whole(part.num_chunks * value), width),
            z3.And(here(family.when), *(here(bound) for bound in inside)),
            lambda number: here(family.first, (part.peer, number)),
            values,
            z3.And(
                here(family.chunk) == start + times(part.chunk, width),
                here(family.length) == times(part.length, width),
            ),
        )

    def covers(self, chunk: Any) -> Any:
        """Return that this rank takes part, on *chunk*."""
        return z3.And(self.when, chunk >= self.start, chunk < self.stop)


def part_of(family: Family) -> Part:
    """Return the part that *family* stands for.

    Raises:
        NotProvedError: it is an operation of the program's own.
    """
    part: Part | None = getattr(family.kind, "part", None)
    if part is None:
        raise NotProvedError("it is made of parts and of steps of its own")
    return part


def has_parts(algorithm: Algorithm) -> bool:
    """Return whether *algorithm* is made of other algorithms, its parameters."""
    return any(
        isinstance(value, Algorithm | Halves) for value in algorithm.arguments_of(algorithm.program).values()
    )


def _symbols_in(value: Any) -> set[Any]:
    return {part for part in terms_in(value) if z3.is_const(part) and not z3.is_int_value(part)}
