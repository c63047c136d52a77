"""Proof of a program made of others, from the contracts of its parts.

It takes as many steps as its parts declare, row by row: parts side by side take theirs at once, so a row
takes as many as the longest of its parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial, reduce
from inspect import signature
from typing import Any

import z3

from collectives.program import Algorithm
from collectives.proof.every_size.composition import COMPOSABLE, Embedded, Parts, part_of
from collectives.proof.every_size.composition_comparison import compare_parts
from collectives.proof.every_size.demands import AFTER, BEFORE, EQUAL_PARTS, Held
from collectives.proof.every_size.nodes import DIVISIONS, PARAMETERS, STAGES, Stage
from collectives.proof.every_size.products import DIVIDED, Multiples, by_choice, simple
from collectives.proof.every_size.reading import Reader
from collectives.proof.every_size.rows import Family, Row
from collectives.proof.every_size.step import World
from collectives.proof.every_size.symbols import NotProvedError, term


def prove_composition(algorithm: Algorithm) -> list[Algorithm]:
    """Prove *algorithm* for every number of ranks and of ranks per node, if its parts do what they should.

    Returns:
        These parts.

    Raises:
        NotProvedError: refuted, not readable by symbols, or more than the solver can decide.
    """
    if "ranks_per_node" not in signature(algorithm.program).parameters:
        raise NotProvedError("it is made of parts, and does not say of how many ranks")
    stages = STAGES.get((algorithm.name, algorithm.collective))
    if stages is None:
        raise NotProvedError("it is made of parts, and nothing is known of what they leave")
    found: dict[int, Algorithm] = {}
    for nodes in DIVISIONS:
        reader = Reader([*nodes.case], num_ranks=nodes.num_ranks)
        parts = Parts(reader.number, reader.assumptions, reader.copy, PARAMETERS)
        named = {
            name: parts.stand_in(value) for name, value in algorithm.arguments_of(algorithm.program).items()
        }
        named["ranks_per_node"] = reader.number(nodes.ranks_per_node)
        reader.read(algorithm, **named)
        counted = {name: named[name] for name in algorithm.arguments_of(algorithm.chunks_for)}
        chunks = term(reader.copy(algorithm.chunks_for)(reader.number(reader.num_ranks), **counted))
        multiples = reader.assumptions.multiples
        known = [*reader.case, *multiples.known]
        world = World(reader.num_ranks, reader.rank, chunks, chunks, 0, known, products=True)
        of_chunks = nodes.of_chunks(partial(multiples.quotient, chunks))
        _Composition(world, multiples, reader.rows, algorithm.collective).run(stages(of_chunks))
        steps = check_steps(algorithm, named, reader, parts, world)
        compare_parts(reader.rows, algorithm, nodes, chunks, multiples.made, steps)
        parts_here = [part_of(family).algorithm for row in reader.rows for family in row.families]
        found |= {id(part): part for part in parts_here}
    return list(found.values())


@dataclass(frozen=True)
class _Composition:
    """The obligations of rows of parts."""

    world: World
    multiples: Multiples
    rows: list[Row]
    collective: str

    def run(self, stages: tuple[Stage, ...]) -> None:
        """Discharge all obligations."""
        if len(stages) != len(self.rows):
            raise NotProvedError(f"it has {len(self.rows)} rows of parts, not {len(stages)}")
        held = BEFORE[self.collective]
        for number, (row, stage) in enumerate(zip(self.rows, stages, strict=True)):
            where = f"parts {number}"
            if row.loop is not None:
                raise NotProvedError(f"{where}: they are in a loop over steps")
            self.check_members(row, stage, where)
            self.check_apart(row, where)
            self.check_demands(row, held, where)
            self.check_stage(row, stage, held, where)
            held = stage.held
        self.world.claim_known("the end: every rank holds what it must", held, AFTER[self.collective], [])

    def at(self, family: Family, rank: Any) -> Embedded:
        """Return the part on *rank*, any of the *family*."""
        values = [z3.FreshInt("v") for _ in family.variables]
        return Embedded.at(family, rank, self.world.rank, values, self.multiples)

    def having(self, family: Family, rank: Any, chunk: Any, stage: Stage) -> Embedded:
        """Return the part of *family* on *rank* that *stage* says to have *chunk*."""
        if len(family.variables) > bool(stage.piece):
            raise NotProvedError("a rank takes part in several parts, and nothing tells which has a chunk")
        values = [stage.piece(rank, chunk)] if family.variables and stage.piece else []
        return Embedded.at(family, rank, self.world.rank, values, self.multiples)

    def check_members(self, row: Row, stage: Stage, where: str) -> None:
        """Prove that the ranks of a part all take part in it, on the same chunks."""
        rank, number, third = (z3.FreshInt(name) for name in ("r", "k", "l"))
        for family in row.families:
            own = self.at(family, rank)
            facts = [*self.world.is_rank(rank), own.when]

            def claim(what: str, so: Any, facts: list[Any] = facts) -> None:
                self.world.claim(f"{where}: {what}", so, facts)

            claim("a rank has a number", z3.And(own.index >= 0, own.index < own.size))
            claim("the rank of that number is this one", own.rank_of(own.index) == rank)
            claim("its chunks are embedded in order", own.in_order)
            claim("a part has chunks", own.stop > own.start)
            claim("its chunks are there", z3.And(own.start >= 0, own.stop <= self.world.num_chunks))
            facts += [number >= 0, number < own.size, third >= 0, third < own.size]
            peer, start = z3.FreshInt("peer"), z3.FreshInt("start")
            facts += [peer == own.rank_of(number), start == own.start]
            claim("its other ranks are ranks", z3.And(*self.world.is_rank(peer)))
            other = self.having(family, peer, start, stage)
            claim("its other ranks take part", other.when)
            claim("they are as many", other.size == own.size)
            claim("their chunks begin with its own", other.start == own.start)
            claim("their chunks end with its own", other.stop == own.stop)
            claim("each has its own number", other.index == number)
            claim("they know the same ranks", other.rank_of(third) == own.rank_of(third))

    def check_apart(self, row: Row, where: str) -> None:
        """Prove that the parts of a rank go up in their chunks, so no two have the same one."""
        rank = z3.FreshInt("r")
        for number, family in enumerate(row.families):
            own = self.at(family, rank)
            for other in row.families[number:]:
                too = self.at(other, rank)
                order = [one < two for one, two in zip(own.fresh, too.fresh, strict=False)]
                if other is family and not order:
                    continue
                facts = [*self.world.is_rank(rank), own.when, too.when]
                facts += order if other is family else []
                self.world.claim(f"{where}: parts go up in their chunks", own.stop <= too.start, facts)

    def check_demands(self, row: Row, held: Held, where: str) -> None:
        """Prove that what parts demand is there."""
        rank, chunk, *_, facts = self.world.place()
        for family in row.families:
            own = self.at(family, rank)
            wanted = BEFORE[_collective(family)].filled(own.index, _own_chunk(family, own, chunk))
            here = [*facts, own.covers(chunk), wanted]
            self.world.claim(f"{where}: what they demand is there", held.filled(rank, chunk), here)

    def check_stage(self, row: Row, stage: Stage, held: Held, where: str) -> None:
        """Prove what *stage* says, of what was *held* before."""
        rank, chunk, q, j, facts = self.world.place()
        known, now = stage.held.filled(rank, chunk), stage.held.holds(rank, chunk, q, j)
        parts = [self.having(family, rank, chunk, stage) for family in row.families]
        covered = z3.Or(*(own.covers(chunk) for own in parts))
        self.world.claim(f"{where}: all that is filled is of a part", covered, [*facts, known])
        for family, own in zip(row.families, parts, strict=True):
            if family.variables and stage.piece is not None:
                any_part = self.at(family, rank)
                told = any_part.fresh[0] == stage.piece(rank, chunk)
                self.world.claim(f"{where}: a chunk is of one part", told, [*facts, any_part.covers(chunk)])
            own_chunk = _own_chunk(family, own, chunk)
            before, after = BEFORE[_collective(family)], AFTER[_collective(family)]
            one, two, giver = z3.FreshInt("k"), z3.FreshInt("l"), stage.giver(rank, chunk, q)
            of_one, of_two, of_giver = (
                z3.And(
                    z3.And(number >= 0, number < own.size, before.filled(number, own_chunk)),
                    after.holds(own.index, own_chunk, number, own_chunk),
                    held.holds(own.rank_of(number), chunk, q, j),
                )
                for number in (one, two, giver)
            )
            here = [*facts, own.covers(chunk)]
            filled = after.filled(own.index, own_chunk)
            self.world.claim(f"{where}: what is filled is what a part fills", filled == known, here)
            here.append(known)
            for what, claim in (
                ("no contribution is added twice", z3.Implies(z3.And(of_one, of_two), one == two)),
                ("nothing else is held", z3.Implies(of_one, now)),
                ("nothing is missing", z3.Implies(now, of_giver)),
            ):
                self.world.claim(f"{where}: {what}", claim, here)


def _collective(family: Family) -> str:
    """Return the collective of the part that *family* stands for."""
    found = part_of(family).algorithm.collective
    if found not in COMPOSABLE:
        raise NotProvedError(f"it has a part for {found}, which moves chunks about")
    return found


def _own_chunk(family: Family, own: Embedded, chunk: Any) -> Any:
    """Return which chunk of the part, as its contract counts, *chunk* belongs to."""
    if _collective(family) not in EQUAL_PARTS:
        return z3.IntVal(0)
    if not z3.eq(simple(own.num_chunks - own.size), z3.IntVal(0)):
        raise NotProvedError("it has a part with several chunks to a rank")
    return by_choice(DIVIDED, chunk - own.start, own.width)


def check_steps(
    algorithm: Algorithm, given: Mapping[str, Any], reader: Reader, parts: Parts, world: World
) -> Any:
    """Prove that *algorithm* takes as many steps as it declares, if it does, and return how many.

    *given* are its parameters, with stand-ins for its *parts*; *reader* has read it.

    Raises:
        NotProvedError: it is refuted, or cannot be read.
    """
    declared = algorithm.declared_cost
    if declared is None:
        return None
    named = {name: given[name] for name in algorithm.arguments_of(declared)}
    cost = reader.copy(declared)(reader.number(reader.num_ranks), **named)
    if cost is None:
        return None
    total = z3.IntVal(0)
    for number, row in enumerate(reader.rows):
        steps = [_steps(family, reader, parts) for family in row.families]
        for family in row.families:
            there = _is_somewhere(family, reader, world)
            world.claim(f"parts {number}: some rank takes part in each", there, [])
        total += reduce(_greater, steps)
    world.claim("its declared number of steps is that of its parts", term(cost.num_steps) == total, [])
    return term(cost.num_steps)


def check_steps_of_part(algorithm: Algorithm, rows: list[Any]) -> None:
    """Check that *algorithm*, of these *rows*, declares how many steps it takes, each with messages.

    Raises:
        NotProvedError: it does not.
    """
    alone = algorithm.cost(1)
    if alone is None or alone.num_steps != 0:
        raise NotProvedError(f"its part {algorithm} does not declare that it takes no steps on one rank")
    if any(all(family.local for family in row.families) for row in rows):
        raise NotProvedError(f"its part {algorithm} takes steps without messages")


def _steps(family: Family, reader: Reader, parts: Parts) -> Any:
    """Return how many steps the part of *family* declares."""
    part = part_of(family)
    cost = parts.stand_in(part.algorithm).cost(reader.number(part.size))
    if cost is None:
        raise NotProvedError(f"its part {part.algorithm} declares no cost")
    return term(cost.num_steps)


def _is_somewhere(family: Family, reader: Reader, world: World) -> Any:
    """Return that the first or the last rank takes part in *family*, for the first value of its variables."""
    values = [loop.start for loop in family.variables]
    found = []
    for rank in (z3.IntVal(0), world.num_ranks - 1):
        here = [z3.substitute(value, (world.rank, rank)) for value in values]
        found.append(Embedded.at(family, rank, world.rank, here, reader.assumptions.multiples).when)
    return z3.Or(*found)


def _greater(one: Any, other: Any) -> Any:
    return z3.If(one >= other, one, other)
