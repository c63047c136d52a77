"""Rows of a program that was read: what all ranks do in a step, over symbols."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import z3

from collectives.program import Local


@dataclass(frozen=True)
class Loop:
    """A symbolic range: *variable* from *start* to below *stop*, and the twin that checks it."""

    variable: Any
    twin: Any
    start: Any
    stop: Any

    def holds(self, value: Any) -> Any:
        """Return that *value* is in the range."""
        return z3.And(value >= self.start, value < self.stop)


@dataclass(frozen=True)
class Family:
    """Operations of one kind in a row: one for each value of the *variables*, where *when* holds.

    Attributes:
        kind: Send, Recv, RecvReduce, Copy or Reduce.
        first: the peer, or the source of a local operation.
        chunk: what is sent or written.
    """

    kind: type
    first: Any
    chunk: Any
    when: Any
    variables: tuple[Loop, ...]

    @property
    def local(self) -> bool:
        """Whether no message belongs to it."""
        return issubclass(self.kind, Local)

    @property
    def reduces(self) -> bool:
        """Whether it adds to what is there."""
        return self.kind.__name__ in ("RecvReduce", "Reduce")

    def at(self, rank: Any, symbolic_rank: Any) -> tuple[Any, Any, Any, list[Any]]:
        """Return (first, chunk, when, fresh variables) of *rank*."""
        swap = [(symbolic_rank, rank)]
        fresh = []
        inside = []
        for loop in self.variables:
            new = z3.FreshInt("v")
            fresh.append(new)
            inside.append(loop.holds(new))
            swap.append((loop.variable, new))
        first, chunk, when = (z3.substitute(part, *swap) for part in (self.first, self.chunk, self.when))
        return first, chunk, z3.And(when, *inside), fresh


@dataclass(frozen=True)
class Row:
    """A step of all ranks; with a *loop*, one for each value of its variable."""

    families: tuple[Family, ...]
    loop: Loop | None


def same_but_for(one: tuple[Family, ...], other: tuple[Family, ...], loop: Loop) -> bool:
    """Return whether *other* is *one* with the twin of *loop* in place of its variable."""
    swap = (loop.variable, loop.twin)
    return len(one) == len(other) and all(
        a.kind is b.kind
        and all(
            z3.eq(z3.simplify(z3.substitute(x, swap)), z3.simplify(y))
            for x, y in ((a.first, b.first), (a.chunk, b.chunk), (a.when, b.when))
        )
        for a, b in zip(one, other, strict=True)
    )
