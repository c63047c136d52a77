"""Rows of a program that was read: what all ranks do in a step, over symbols."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import z3

from collectives.program import Local
from collectives.proof.every_size.bit_sums import BIT_SUM, INVERSE
from collectives.proof.every_size.loops import Loop
from collectives.proof.every_size.symbols import symbols_of


def solutions(term: Any, symbol: Any, value: Any) -> list[Any] | None:
    """Return for which *symbol* alone *term* may be *value*, or None where those are not known.

    They are known of a choice between terms of which each grows or falls by one with the symbol, or has the
    sum over its powers of two, where no two have the same (which `SymbolicStep.check_operations` proves).
    """
    if z3.is_app(term) and term.decl().kind() == z3.Z3_OP_ITE:
        _, yes, no = term.children()
        either, other = (solutions(part, symbol, value) for part in (yes, no))
        return None if either is None or other is None else [*either, *other]
    at_zero = z3.substitute(term, (symbol, z3.IntVal(0)))
    for sign in (1, -1):
        if z3.eq(z3.simplify(term - at_zero - sign * symbol), z3.IntVal(0)):
            return [sign * (value - at_zero)]
    rest = z3.simplify(term - BIT_SUM(symbol))
    return [INVERSE(value - rest)] if symbol.get_id() not in symbols_of(rest) else None


@dataclass(frozen=True)
class Instance:
    """The operation of a family on one rank, for fresh symbols in place of the family's variables.

    Attributes:
        first: the peer, or the first chunk of the source of a local operation.
        chunk: the first chunk that is sent or written.
        length: number of chunks.
        when: that the operation is there.
        fresh: the symbols, over which it may be any.
    """

    first: Any
    chunk: Any
    length: Any
    when: Any
    fresh: list[Any]

    @property
    def parts(self) -> tuple[Any, Any, Any, Any]:
        """All terms."""
        return self.first, self.chunk, self.length, self.when

    def covers(self, chunk: Any) -> Any:
        """Return that it is there, and sends or writes *chunk*."""
        return z3.And(self.when, chunk >= self.chunk, chunk < self.chunk + self.length)

    def is_there(self, claim: Any, part: Any = None, value: Any = None) -> Any:
        """Return that there is such an operation for which *claim* holds.

        Where a *part* of it is known to have to be *value*, and that leaves a few operations only, nothing is
        said of any.
        """
        both = z3.And(self.when, claim)
        if not self.fresh:
            return both
        found = None if part is None or len(self.fresh) != 1 else solutions(part, self.fresh[0], value)
        if found is None:
            return z3.Exists(self.fresh, both)
        return z3.Or(*(z3.substitute(both, (self.fresh[0], solution)) for solution in found))

    def is_other(self, other: Instance) -> Any:
        """Return that *other*, of the same family, is for other values of its variables."""
        return z3.Or(*(a != b for a, b in zip(self.fresh, other.fresh, strict=True)))


@dataclass(frozen=True)
class Family:
    """Operations of one kind in a row: one for each value of the *variables*, where *when* holds.

    Attributes:
        kind: Send, Recv, RecvReduce, Copy or Reduce.
        first: as of an `Instance`, and *chunk*, *length* and *when* too.
    """

    kind: type
    first: Any
    chunk: Any
    length: Any
    when: Any
    variables: tuple[Loop, ...]

    @property
    def parts(self) -> tuple[Any, Any, Any, Any]:
        """All terms."""
        return self.first, self.chunk, self.length, self.when

    @property
    def local(self) -> bool:
        """Whether no message belongs to it."""
        return issubclass(self.kind, Local)

    @property
    def reduces(self) -> bool:
        """Whether it adds to what is there."""
        return self.kind.__name__ in ("RecvReduce", "Reduce")

    def at(self, rank: Any, symbolic_rank: Any) -> Instance:
        """Return the operation on *rank*, which takes the place of *symbolic_rank*."""
        swap, fresh, inside = [(symbolic_rank, rank)], [], []
        for loop in self.variables:
            value = z3.FreshInt("v")
            fresh.append(value)
            inside.append(loop.holds(value))
            swap.append((loop.variable, value))
        first, chunk, length, when = (z3.substitute(part, *swap) for part in self.parts)
        return Instance(first, chunk, length, z3.And(when, *inside), fresh)


@dataclass(frozen=True)
class Row:
    """A step of all ranks; with a *loop*, one for each value of its variable."""

    families: tuple[Family, ...]
    loop: Loop | None


def turns_of(rows: list[Row]) -> list[list[Row]]:
    """Return *rows* in groups: those of one loop, one after another in each turn, or one that is in none."""
    groups: list[list[Row]] = []
    for row in rows:
        if row.loop is not None and groups and groups[-1][0].loop is row.loop:
            groups[-1].append(row)
        else:
            groups.append([row])
    return groups


def same_but_for(one: tuple[Family, ...], other: tuple[Family, ...], loop: Loop) -> bool:
    """Return whether *other* is *one* with the twin of *loop* in place of its variable."""
    return len(one) == len(other) and all(_are_same(a, b, loop) for a, b in zip(one, other, strict=True))


def _are_same(one: Family, other: Family, loop: Loop) -> bool:
    """Return whether they are, each over the same values of its other variables."""
    variables = [variable for variable in one.variables if variable is not loop]
    if one.kind is not other.kind or len(variables) != len(other.variables):
        return False
    inner = list(zip(variables, other.variables, strict=True))
    swap = [(loop.variable, loop.twin), *((a.variable, b.variable) for a, b in inner)]
    pairs = [*zip(one.parts, other.parts, strict=True)]
    pairs += [(a.holds(a.variable), b.holds(b.variable)) for a, b in inner]
    return all(z3.eq(z3.simplify(z3.substitute(x, *swap)), z3.simplify(y)) for x, y in pairs)
