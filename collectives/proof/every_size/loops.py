"""Loops over symbols: which values their variable takes, and how many."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import z3

from collectives.algorithms.shared.doubling import doublings


class Loop(Protocol):
    """A loop whose body was read for any value, and again for another, which checks it."""

    @property
    def variable(self) -> Any:
        """The symbol of the first value."""

    @property
    def twin(self) -> Any:
        """The symbol of the other."""

    @property
    def first(self) -> Any:
        """The first value."""

    @property
    def bounds(self) -> tuple[Any, Any]:
        """The two numbers on which it depends."""

    @property
    def turns(self) -> Any:
        """How many values there are."""

    @property
    def needs(self) -> Any:
        """What must hold for that to be so."""

    def holds(self, value: Any) -> Any:
        """Return that *value* is one of them."""

    def next(self, value: Any) -> Any:
        """Return what comes after *value*."""

    def end(self) -> tuple[Any, list[Any]]:
        """Return what would come after the last value, and what is known of it."""

    def numbers(self, start: int, stop: int) -> Iterable[int]:
        """Return the values where the bounds are these."""


@dataclass(frozen=True)
class Range:
    """A range from *start* to below *stop*, which is not below *start*."""

    variable: Any
    twin: Any
    start: Any
    stop: Any

    @property
    def first(self) -> Any:
        """The first value."""
        return self.start

    @property
    def bounds(self) -> tuple[Any, Any]:
        """Both ends."""
        return self.start, self.stop

    @property
    def turns(self) -> Any:
        """How many values there are."""
        return self.stop - self.start

    @property
    def needs(self) -> Any:
        """That the end is not before the start."""
        return self.stop >= self.start

    def holds(self, value: Any) -> Any:
        """Return that *value* is one of them."""
        return z3.And(value >= self.start, value < self.stop)

    def next(self, value: Any) -> Any:
        """Return what comes after *value*."""
        return value + 1

    def end(self) -> tuple[Any, list[Any]]:
        """Return what would come after the last value, and what is known of it."""
        return self.stop, []

    def numbers(self, start: int, stop: int) -> Iterable[int]:
        """Return the values where the bounds are these."""
        return range(start, stop)


@dataclass(frozen=True)
class Doublings:
    """1, 2, 4 … below *stop*, which is 2 or more: any number from 1 on, for all that is proved of it."""

    variable: Any
    twin: Any
    stop: Any
    turns: Any
    past: Any = field(default_factory=lambda: z3.FreshInt("past"))

    @property
    def first(self) -> Any:
        """The first value."""
        return z3.IntVal(1)

    @property
    def bounds(self) -> tuple[Any, Any]:
        """Both ends."""
        return z3.IntVal(1), self.stop

    @property
    def needs(self) -> Any:
        """That there is a rank to double to."""
        return self.stop >= 2

    def holds(self, value: Any) -> Any:
        """Return that *value* is one of them."""
        return z3.And(value >= 1, value < self.stop)

    def next(self, value: Any) -> Any:
        """Return what comes after *value*."""
        return 2 * value

    def end(self) -> tuple[Any, list[Any]]:
        """Return what would come after the last value, and what is known of it."""
        return self.past, [self.past >= self.stop, self.past < 2 * self.stop]

    def numbers(self, start: int, stop: int) -> Iterable[int]:
        """Return the values where the bounds are these."""
        return doublings(stop)
