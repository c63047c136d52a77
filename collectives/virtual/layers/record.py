"""Record of a block: what a call of it and its backward pass issue.

Storages are numbered as they are born; those of the inputs are -1, -2, … in order, and after them comes that
of the gradient with which the backward pass begins.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from collectives.virtual.computation.totals import Totals
from collectives.virtual.streams.score import Item


class Birth(NamedTuple):
    """A storage that is made.

    Attributes:
        number: of it.
        nbytes: its size in bytes.
        operation: that makes it.
        running: the innermost module within that runs, by its name in the block; None: none does.
        arrived: that of whose output a gradient has come last; None: of none within.
    """

    number: int
    nbytes: int
    operation: object
    running: str | None
    arrived: str | None


class Kind(NamedTuple):
    """A tensor that comes out: its kind (`collectives.virtual.gpu.shapes`), and its storage's number."""

    kind: int
    storage: int


Issued: TypeAlias = tuple[int, Item]
"""An item, and how many boundaries of the host's Python come before it."""


@dataclass
class Issue:
    """What is issued on end.

    Attributes:
        items: in order, with the boundaries before each.
        storages: births, and numbers of storages that die.
        boundaries: after the last item.
        part: of the iteration, as the GPU has it at the end.
        arrived: module within of whose output a gradient has come last, at the end; None: of none within.
    """

    items: list[Issued] = field(default_factory=list)
    storages: list[Birth | int] = field(default_factory=list)
    boundaries: int = 0
    part: str = ""
    arrived: str | None = None


@dataclass(frozen=True)
class Forward:
    """A call of a block.

    Attributes:
        issue: what it issues.
        outputs: what comes out, in the order of its leaves: tensors, or -1 - n for input n, or other values.
        differentiable: which of them wants a gradient; None where none does.
        num_inputs: leaves of its arguments.
        entered: which of the modules within are called, by their place among them.
        totals: of what is computed.
        draws: random numbers that are drawn, in steps of the generator.
    """

    issue: Issue
    outputs: tuple[Kind | int, ...]
    differentiable: int | None
    num_inputs: int
    entered: tuple[int, ...]
    totals: Totals
    draws: int

    def given(self) -> set[int]:
        """Return the numbers of the storages of its outputs."""
        return {own.storage for own in self.outputs if isinstance(own, Kind)}


@dataclass(frozen=True)
class Backward:
    """A backward pass of a block.

    Attributes:
        issues: what is issued before each gradient that comes out, and after the last of a parameter's.
        gradients: of parameters, by their position among those of the block, in order.
        of_inputs: gradients of inputs, by their position.
        totals, draws: as of a call.
    """

    issues: tuple[Issue, ...]
    gradients: tuple[tuple[int, Kind], ...]
    of_inputs: tuple[tuple[int, Kind], ...]
    totals: Totals
    draws: int

    def deaths(self) -> list[int]:
        """Return the numbers of the storages that die while it is issued."""
        return [own for issue in self.issues for own in issue.storages if isinstance(own, int)]

    def with_deaths_of(self, other: Backward, outputs: Container[int]) -> Backward | None:
        """Return this with what dies in *other* alone of inputs and *outputs*; None if they differ otherwise.

        An input that dies in one of two equal calls is held up to there by both: in the other one something
        outside of the block has held it longer.
        """
        if len(self.issues) != len(other.issues):
            return None
        pairs = zip(self.issues, other.issues, strict=True)
        merged = [_merged(own.storages, others.storages, outputs) for own, others in pairs]
        issues = tuple(
            replace(own, storages=storages)
            for own, storages in zip(self.issues, merged, strict=True)
            if storages is not None
        )
        same = replace(self, issues=issues) if len(issues) == len(merged) else None
        if same is None or len({*same.deaths()}) != len(same.deaths()):
            return None
        others = tuple(
            replace(own, storages=issue.storages) for own, issue in zip(other.issues, issues, strict=True)
        )
        return same if same == replace(other, issues=others) else None


def _merged(
    one: Sequence[Birth | int], other: Sequence[Birth | int], outputs: Container[int]
) -> list[Birth | int] | None:
    """Return what happens in one of two lists or both, in order; None if they differ otherwise."""
    merged: list[Birth | int] = []
    left, right = [*reversed(one)], [*reversed(other)]
    while left or right:
        if left and right and left[-1] == right[-1]:
            left.pop()
            merged.append(right.pop())
            continue
        side = next((own for own in (left, right) if own and _is_of_outside(own[-1], outputs)), None)
        if side is None:
            return None
        merged.append(side.pop())
    return merged


def _is_of_outside(own: Birth | int, outputs: Container[int]) -> bool:
    """Return whether a storage dies that something outside of the block may hold longer."""
    return isinstance(own, int) and (own < 0 or own in outputs)
