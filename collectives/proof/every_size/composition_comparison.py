"""Comparison of what was read of a composed program with its own steps, for few ranks in few nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import z3

from collectives.algorithms.shared.embedding import embed, side_by_side
from collectives.program import Algorithm, Step
from collectives.proof.every_size.comparison import OF_POWERS, Turns, Values, as_function, plain
from collectives.proof.every_size.composition import part_of
from collectives.proof.every_size.nodes import COUNT, LAST, SIZE, Nodes
from collectives.proof.every_size.products import OF_NUMBERS
from collectives.proof.every_size.rows import Family, Row
from collectives.proof.every_size.symbols import NotProvedError

COMPARED = 4
"""Up to how many ranks per node and nodes are compared."""

Made = list[tuple[Any, Callable[..., int], tuple[Any, ...]]]


def compare_parts(
    rows: list[Row], algorithm: Algorithm, nodes: Nodes, chunks: Any, made: Made, num_steps: Any
) -> None:
    """Compare *rows* of parts with the steps of *algorithm*, and what it declares.

    Args:
        rows: of symbols.
        algorithm: what they were read of.
        nodes: for which numbers of ranks they were read.
        chunks: how many there are.
        made: the symbols that were made in reading, and how (`Multiples.made`).
        num_steps: how many steps it declares, or None where that was not read.

    Raises:
        NotProvedError: they differ.
    """
    holds, num_ranks, per_node = map(
        as_function, (z3.And(*nodes.case), nodes.num_ranks, nodes.ranks_per_node)
    )
    counted = as_function(chunks)
    declared = None if num_steps is None else as_function(num_steps)
    worked_out = [
        (symbol.decl().name(), function, [as_function(value) for value in of])
        for symbol, function, of in made
    ]
    readers = [[_Read(family) for family in row.families] for row in rows]
    names = [symbol.decl().name() for symbol in (SIZE, LAST, COUNT)]
    for numbers in product(range(1, COMPARED + 1), repeat=3):
        values = {**OF_POWERS, **OF_NUMBERS, **dict(zip(names, numbers, strict=True))}
        ranks = num_ranks(values)
        if ranks < 2 or not holds(values):
            continue
        for name, function, of in worked_out:
            values[name] = function(*(value(values) for value in of))
        bound = algorithm.with_parameters(ranks_per_node=per_node(values))
        if declared is not None:
            cost = bound.cost(ranks)
            if cost is None or cost.num_steps != declared(values):
                raise NotProvedError(f"what was read differs from what it declares of {ranks} ranks")
        for rank in range(ranks):
            here = {**values, "r": rank}
            of_rows = (
                side_by_side(*(steps for read in row for steps in read.each(here, counted)))
                for row in readers
            )
            found = [sorted(plain(own) for own in step if own.when) for row in of_rows for step in row]
            if found != [sorted(map(plain, step)) for step in bound.steps(rank, ranks)]:
                raise NotProvedError(f"what was read differs from its steps of {ranks} ranks")


@dataclass(frozen=True)
class _Members:
    """The ranks of a part, as `embedding.Subgroup`."""

    index: int
    size: int
    rank_of: Callable[[int], int]


class _Read:
    """The parts that a family stands for."""

    def __init__(self, family: Family) -> None:
        self.part = part_of(family)
        self.over = Turns.of(family)
        terms = (self.part.index, self.part.size, family.first, family.chunk, family.length, family.when)
        self.index, self.size, self.first, self.chunk, self.length, self.when = map(as_function, terms)

    def each(self, values: Values, counted: Callable[[Values], int]) -> Iterator[Iterator[Step]]:
        """Return the steps of each."""
        return (self.steps(inside, counted) for inside in self.over.each(values))

    def steps(self, values: Values, counted: Callable[[Values], int]) -> Iterator[Step]:
        """Return the steps of one."""
        algorithm, size = self.part.algorithm, self.size(values)
        peer, chunk, length = (
            symbol.decl().name() for symbol in (self.part.peer, self.part.chunk, self.part.length)
        )
        return embed(
            algorithm,
            _Members(self.index(values), size, lambda number: self.first({**values, peer: number})),
            first_chunk=self.chunk({**values, chunk: 0}),
            num_chunks=self.length({**values, length: 1}) * algorithm.num_chunks(size),
            of=counted(values),
            when=self.when(values),
        )
