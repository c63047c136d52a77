"""Comparison of what was read of a program with the program's own steps for few ranks.

A slip of the reader would prove something else than the program; this is where it would show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from inspect import signature
from typing import Any

import z3

from collectives.errors import NotSupportedError
from collectives.program import Algorithm, Local, Operation
from collectives.proof.every_size.bit_sums import BIT_SUM, LEVEL
from collectives.proof.every_size.loops import Loop
from collectives.proof.every_size.powers import HALVED, NUM_RANKS, POWER, QUOTIENT, ROOT, START
from collectives.proof.every_size.rows import Family, Row, turns_of
from collectives.proof.every_size.symbols import NotProvedError
from collectives.proof.every_size.terms import once_for_each

COMPARED = (*range(2, 18), 23, 31, 32, 33, 47, 64)
"""Numbers of ranks for which steps are compared."""

Values = Mapping[str, Any]
"""Of symbols and functions, by name."""

Plain = tuple[str, int, int, int]
"""An operation: its kind, the peer or source, the chunk and the number of chunks."""


Functions = Mapping[str, Callable[..., int]]
"""Of numbers, by name."""


def compare(
    rows: list[Row], algorithm: Algorithm, case: list[Any], functions: Callable[[int], Functions]
) -> None:
    """Compare *rows*, which were read, with the steps of *algorithm*.

    Args:
        rows: of symbols.
        algorithm: what they were read of.
        case: of which numbers of ranks they were read.
        functions: of a number of ranks: what the functions in *rows* stand for, by name.

    Raises:
        NotProvedError: they differ, or it refuses a number of ranks.
    """
    expanded = [_Rows(group) for group in turns_of(rows)]
    holds = as_function(z3.And(NUM_RANKS >= 2, *case))
    for num_ranks in COMPARED:
        root = compared_root(num_ranks)
        rooted = (
            algorithm.with_parameters(root=root)
            if "root" in signature(algorithm.program).parameters
            else algorithm
        )
        known = {**OF_POWERS, **functions(num_ranks), "p": num_ranks, "k": num_ranks.bit_length() - 1}
        known[ROOT.decl().name()] = root
        for rank in range(num_ranks) if holds(known) else ():
            try:
                own = [sorted(map(plain, step)) for step in rooted.steps(rank, num_ranks)]
            except NotSupportedError as refusal:
                raise NotProvedError(f"it refuses {num_ranks} ranks") from refusal
            if [sorted(step) for group in expanded for step in group.steps({**known, "r": rank})] != own:
                raise NotProvedError(f"what was read differs from its steps of {num_ranks} ranks")


def compared_root(num_ranks: int) -> int:
    """Return the root for which steps of a collective that has one are compared."""
    return num_ranks // 3


class _Rows:
    """Rows of one loop, or one row, ready to be worked out for numbers."""

    def __init__(self, rows: list[Row]) -> None:
        self.loop = Turns(rows[0].loop)
        self.rows = [[_Operations(family) for family in row.families] for row in rows]

    def steps(self, values: Values) -> Iterator[list[Plain]]:
        """Yield the steps that they stand for."""
        for inside in self.loop.each(values):
            for families in self.rows:
                yield [operation for family in families for operation in family.each(inside)]


class _Operations:
    """The operations that a family stands for."""

    def __init__(self, family: Family) -> None:
        self.kind = family.kind.__name__
        self.over = Turns.of(family)
        self.first, self.chunk, self.length, self.when = map(as_function, family.parts)

    def each(self, values: Values) -> Iterator[Plain]:
        """Yield them."""
        for inside in self.over.each(values):
            if self.when(inside):
                yield self.kind, self.first(inside), self.chunk(inside), self.length(inside)


class Turns:
    """The turns of a loop; without one, one turn."""

    def __init__(self, loop: Loop | None) -> None:
        self.loop = loop
        self.name = str(loop.variable) if loop else ""
        self.bounds = [as_function(bound) for bound in loop.bounds] if loop else []

    @classmethod
    def of(cls, family: Family) -> Turns:
        """Return those in which a row has an operation of *family*, which has one variable at most."""
        return cls(family.variables[0] if family.variables else None)

    def each(self, values: Values) -> Iterator[Values]:
        """Yield *values* with each value of the variable."""
        if self.loop is None:
            yield values
            return
        for value in self.loop.numbers(*(bound(values) for bound in self.bounds)):
            yield {**values, self.name: value}


def plain(operation: Operation) -> Plain:
    """Return *operation* as numbers and the name of its kind."""
    first = operation.source if isinstance(operation, Local) else operation.peer
    return type(operation).__name__, first, operation.chunk, operation.num_chunks


OF_POWERS: Functions = {
    POWER.name(): lambda level: 1 << level,
    START.name(): lambda number, level: number >> level << level,
    QUOTIENT.name(): lambda number, level: number >> level,
    HALVED.name(): lambda number, level: number >> level + 1 << level,
}
_OPERATORS: Mapping[int, str] = {
    z3.Z3_OP_ADD: "+",
    z3.Z3_OP_SUB: "-",
    z3.Z3_OP_MUL: "*",
    z3.Z3_OP_IDIV: "//",
    z3.Z3_OP_MOD: "%",
    z3.Z3_OP_LE: "<=",
    z3.Z3_OP_LT: "<",
    z3.Z3_OP_GE: ">=",
    z3.Z3_OP_GT: ">",
    z3.Z3_OP_EQ: "==",
    z3.Z3_OP_DISTINCT: "!=",
    z3.Z3_OP_AND: "and",
    z3.Z3_OP_OR: "or",
}


def sums_over_powers(term: Any, num_ranks: int) -> dict[str, Callable[[int], int]]:
    """Return what the sum of *term*, over the powers in a number, is, by the name of its symbol."""
    added = as_function(term)
    known = {**OF_POWERS, "p": num_ranks, "k": num_ranks.bit_length() - 1}
    by_level = [added({**known, LEVEL.decl().name(): level}) for level in range(num_ranks.bit_length())]

    def summed(number: int) -> int:
        return sum(by_level[level] for level in range(number.bit_length()) if number >> level & 1)

    return {BIT_SUM.name(): summed}


def as_function(term: Any) -> Callable[[Values], Any]:
    """Return a function of the symbols' values that works out *term*, of the solver or a number.

    Raises:
        NotProvedError: it has an operator that programs do not need.
    """
    function: Callable[[Values], Any] = eval(f"lambda values: {_as_python(term)}")
    return function


def _as_python(term: Any) -> str:
    return f"({term})" if isinstance(term, int) else _written(term)


@once_for_each
def _written(term: Any) -> str:
    if z3.is_int_value(term):
        return f"({term})"
    if z3.is_true(term) or z3.is_false(term):
        return str(term)
    kind, parts = term.decl().kind(), [_as_python(part) for part in term.children()]
    if kind == z3.Z3_OP_UNINTERPRETED:
        value = f"values[{term.decl().name()!r}]"
        return f"{value}({', '.join(parts)})" if parts else value
    if kind == z3.Z3_OP_ITE:
        condition, yes, no = parts
        return f"({yes} if {condition} else {no})"
    if kind in (z3.Z3_OP_NOT, z3.Z3_OP_UMINUS):
        return f"({'not ' if kind == z3.Z3_OP_NOT else '-'}{parts[0]})"
    if kind not in _OPERATORS:
        raise NotProvedError(f"it computes {term.decl()}, which is not read")
    return f"({f' {_OPERATORS[kind]} '.join(parts)})"
