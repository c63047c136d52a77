"""Loops over symbols: which values their variable takes, and how many.

A loop takes what is held from one state to the next.  States are numbered; a range goes from state i to
i + 1 in its turn i.  Powers of two are counted by their levels: a loop that doubles goes up, one that halves
goes down, and what programs and invariants see of level i is 2^i.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import z3

from collectives.proof.every_size.powers import POWER, START


@dataclass(frozen=True)
class Loop:
    """A range from *start* to below *stop*, whose body was read for any value, and again for another.

    Attributes:
        variable: the symbol of that value.
        twin: the symbol of the other, which checks it.
    """

    variable: Any
    twin: Any
    start: Any
    stop: Any

    @property
    def turns(self) -> Any:
        """How many values there are."""
        return self.stop - self.start

    def holds(self, value: Any) -> Any:
        """Return that *value* is one of them."""
        return z3.And(value >= self.start, value < self.stop)

    def numbers(self, start: int, stop: int, stride: int = 1) -> Iterable[int]:
        """Return the values where the bounds are these, in order."""
        return range(start, stop, stride)

    @property
    def bounds(self) -> tuple[Any, ...]:
        """Of what `numbers` are."""
        return self.start, self.stop

    @property
    def first(self) -> Any:
        """The state before all turns."""
        return self.start

    @property
    def last(self) -> Any:
        """The state after all turns."""
        return self.stop

    def before(self, turn: Any) -> Any:
        """Return the state before *turn*."""
        return turn

    def after(self, turn: Any) -> Any:
        """Return the state after *turn*."""
        return turn + 1

    def seen(self, number: Any) -> Any:
        """Return what programs and invariants see of *number*, a value or a state."""
        return number


@dataclass(frozen=True)
class Strides(Loop):
    """A range of numbers that are *stride* apart."""

    stride: int

    @property
    def turns(self) -> Any:
        """How many values there are."""
        return (self.stop - self.start + self.stride - 1) / self.stride

    def holds(self, value: Any) -> Any:
        """Return that *value* is one of them."""
        return z3.And(super().holds(value), (value - self.start) % self.stride == 0)

    @property
    def bounds(self) -> tuple[Any, ...]:
        """Of what `numbers` are."""
        return self.start, self.stop, self.stride

    @property
    def last(self) -> Any:
        """The state after all turns."""
        return self.start + self.turns * self.stride

    def after(self, turn: Any) -> Any:
        """Return the state after *turn*."""
        return turn + self.stride


@dataclass(frozen=True)
class Multiples(Loop):
    """The multiples of 2^level from 0 on, of operations in a step; no loop over steps is so."""

    level: Any

    def holds(self, value: Any) -> Any:
        """Return that *value* is one of them."""
        return z3.And(super().holds(value), START(value, self.level) == value)

    @property
    def bounds(self) -> tuple[Any, ...]:
        """Of what `numbers` are."""
        return self.start, self.stop, POWER(self.level)


class Doublings(Loop):
    """1, 2, 4 …, by their levels."""

    def seen(self, number: Any) -> Any:
        """Return the power of two at this level."""
        return POWER(z3.simplify(number))


class Halvings(Doublings):
    """… 4, 2, 1, by their levels; state i is that before level i - 1 and after level i."""

    def numbers(self, start: int, stop: int, stride: int = 1) -> Iterable[int]:
        """Return the levels where the bounds are these, the highest first."""
        return reversed(range(start, stop, stride))

    @property
    def first(self) -> Any:
        """The state before all turns."""
        return self.stop

    @property
    def last(self) -> Any:
        """The state after all turns."""
        return self.start

    def before(self, turn: Any) -> Any:
        """Return the state before *turn*."""
        return turn + 1

    def after(self, turn: Any) -> Any:
        """Return the state after *turn*."""
        return turn
