"""Comparison of what was read of a program with the program's own steps for few ranks.

A slip of the reader would prove something else than the program; this is where it would show.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from typing import Any

import z3

from collectives.errors import NotSupportedError
from collectives.program import Algorithm, Local, Operation
from collectives.proof.every_size.loops import Loop
from collectives.proof.every_size.rows import Family, Row
from collectives.proof.every_size.symbols import NotProvedError

COMPARED = (*range(2, 25), 31, 32, 33, 47, 63, 64)
"""Numbers of ranks for which steps are compared."""

Values = Mapping[str, Any]
"""Of symbols and functions, by name."""

Plain = tuple[str, int, int, int]
"""An operation: its kind, the peer or source, the chunk and the number of chunks."""


def compare(
    rows: list[Row], algorithm: Algorithm, functions: Callable[[int], Mapping[str, Callable[[int], int]]]
) -> None:
    """Compare *rows*, which were read, with the steps of *algorithm*.

    Args:
        rows: of symbols.
        algorithm: what they were read of.
        functions: of a number of ranks: what the functions in *rows* stand for, by name.

    Raises:
        NotProvedError: they differ, or it refuses a number of ranks.
    """
    expanded = [_Row(row) for row in rows]
    for num_ranks in COMPARED:
        known = {"bit_length": int.bit_length, **functions(num_ranks)}
        for rank in range(num_ranks):
            try:
                own = [sorted(map(_plain, step)) for step in algorithm.steps(rank, num_ranks)]
            except NotSupportedError as refusal:
                raise NotProvedError(f"it refuses {num_ranks} ranks") from refusal
            values = {**known, "p": num_ranks, "r": rank}
            if [sorted(step) for row in expanded for step in row.steps(values)] != own:
                raise NotProvedError(f"what was read differs from its steps of {num_ranks} ranks")


class _Row:
    """A row, ready to be worked out for numbers."""

    def __init__(self, row: Row) -> None:
        self.loop = _Turns(row.loop)
        self.families = [_Operations(family) for family in row.families]

    def steps(self, values: Values) -> Iterator[list[Plain]]:
        """Yield the steps that the row stands for."""
        for inside in self.loop.each(values):
            yield [operation for family in self.families for operation in family.each(inside)]


class _Operations:
    """The operations that a family stands for."""

    def __init__(self, family: Family) -> None:
        self.kind = family.kind.__name__
        self.over = _Turns(family.variables[0] if family.variables else None)
        self.first, self.chunk, self.length, self.when = map(as_function, family.parts)

    def each(self, values: Values) -> Iterator[Plain]:
        """Yield them."""
        for inside in self.over.each(values):
            if self.when(inside):
                yield self.kind, self.first(inside), self.chunk(inside), self.length(inside)


class _Turns:
    """The turns of a loop; without one, one turn."""

    def __init__(self, loop: Loop | None) -> None:
        self.loop = loop
        self.name = str(loop.variable) if loop else ""
        self.bounds = [as_function(bound) for bound in loop.bounds] if loop else []

    def each(self, values: Values) -> Iterator[Values]:
        """Yield *values* with each value of the variable."""
        if self.loop is None:
            yield values
            return
        for value in self.loop.numbers(*(bound(values) for bound in self.bounds)):
            yield {**values, self.name: value}


def _plain(operation: Operation) -> Plain:
    first = operation.source if isinstance(operation, Local) else operation.peer
    return type(operation).__name__, first, operation.chunk, operation.num_chunks


_FOLDS: Mapping[int, Callable[[Any, Any], Any]] = {
    z3.Z3_OP_ADD: operator.add,
    z3.Z3_OP_SUB: operator.sub,
    z3.Z3_OP_MUL: operator.mul,
    z3.Z3_OP_LE: operator.le,
    z3.Z3_OP_LT: operator.lt,
    z3.Z3_OP_GE: operator.ge,
    z3.Z3_OP_GT: operator.gt,
    z3.Z3_OP_EQ: operator.eq,
    z3.Z3_OP_DISTINCT: operator.ne,
    z3.Z3_OP_AND: operator.and_,
    z3.Z3_OP_OR: operator.or_,
}


def as_function(term: Any) -> Callable[[Values], Any]:
    """Return a function of the symbols' values that works out *term*, of the solver or a number.

    Raises:
        NotProvedError: it has an operator that programs do not need.
    """
    if isinstance(term, int):
        return lambda values: term
    if z3.is_int_value(term):
        number = term.as_long()
        return lambda values: number
    if z3.is_true(term) or z3.is_false(term):
        truth = z3.is_true(term)
        return lambda values: truth
    kind, parts = term.decl().kind(), [as_function(part) for part in term.children()]
    if kind == z3.Z3_OP_UNINTERPRETED and not parts:
        return operator.itemgetter(str(term))
    if kind == z3.Z3_OP_UNINTERPRETED:
        name, (argument,) = term.decl().name(), parts
        return lambda values: values[name](argument(values))
    if kind == z3.Z3_OP_ITE:
        condition, yes, no = parts
        return lambda values: yes(values) if condition(values) else no(values)
    if kind == z3.Z3_OP_NOT:
        return lambda values: not parts[0](values)
    if kind == z3.Z3_OP_UMINUS:
        return lambda values: -parts[0](values)
    if kind not in _FOLDS:
        raise NotProvedError(f"it computes {term.decl()}, which is not read")
    fold = _FOLDS[kind]
    return lambda values: reduce(fold, [part(values) for part in parts])
