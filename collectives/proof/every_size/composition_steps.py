"""Steps of a program made of others: as many as its parts declare, row by row, and as many as it declares.

Parts side by side take their steps at once, so a row takes as many as the longest of its parts.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

import z3

from collectives.program import Algorithm
from collectives.proof.every_size.composition import Embedded, Parts, part_of
from collectives.proof.every_size.reading import Reader
from collectives.proof.every_size.rows import Family
from collectives.proof.every_size.step import World
from collectives.proof.every_size.symbols import NotProvedError, term


def check_steps(
    algorithm: Algorithm, given: Mapping[str, Any], reader: Reader, parts: Parts, world: World
) -> Any:
    """Prove that *algorithm* takes as many steps as it declares, if it does, and return how many.

    Args:
        algorithm: what was read.
        given: its parameters, with stand-ins for its parts.
        reader: what was read of it.
        parts: those that the stand-ins are of.
        world: of the rows.

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
