"""Array over all ranks, for the array form of programs, that stays a formula while it is a rotation.

A program of p ranks computes much that few ask for: of the chunks of a ring, a network with equal chunks
needs none.  So ``rank``, ``rank + 3`` and ``(rank - step) % p`` are kept as what they are, at no cost, and
become an array, which costs no arithmetic either, only where one is asked for.  Every other
operation gives the plain NumPy array that it would give on ``np.arange(p)``.  What that saves:
``benchmarks/fast_paths.py``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from collectives.errors import ProgramError

FEW = 16
"""Ranks that are looked for by formula; for more, arrays are faster."""


class LazyArray:
    """A value over all ranks that becomes an array when it takes part in arithmetic, or is asked for."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[np.int64]:
        raise NotImplementedError

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        return getattr(ufunc, method)(*map(_plain, inputs), **options)

    def __bool__(self) -> bool:
        raise ProgramError(
            "a program in array form must not branch on rank, which stands for all ranks at once; use when="
        )

    def __len__(self) -> int:
        return len(np.asarray(self))

    def __getitem__(self, place: Any) -> Any:
        return np.asarray(self)[_plain(place)]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(np.asarray(self), name)

    def __repr__(self) -> str:
        return repr(np.asarray(self))


class Deferred(LazyArray):
    """What *compute* returns, worked out at the first time that somebody asks.

    Attributes:
        place: what all values have in common, where that is known: rest and divisor.
    """

    __slots__ = ("_compute", "_value", "place")

    def __init__(self, compute: Callable[[], Any], place: tuple[int, int] | None = None) -> None:
        self.place = place
        self._compute = compute
        self._value: npt.NDArray[np.int64] | None = None

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[np.int64]:
        if self._value is None:
            self._value = np.asarray(self._compute())
        return self._value if dtype is None else self._value.astype(dtype, copy=False)


class RankArray(LazyArray):
    """``rank + offset``, or with *turn* ``(rank + turn) % num_ranks + offset``, over all ranks."""

    __slots__ = ("_num_ranks", "_offset", "_turn")

    def __init__(self, num_ranks: int, offset: int = 0, turn: int | None = None) -> None:
        self._num_ranks = num_ranks
        self._offset = offset
        self._turn = turn

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[np.int64]:
        turn = (self._turn or 0) % self._num_ranks if self._num_ranks else 0
        ranks = _twice(self._num_ranks)[turn : turn + self._num_ranks]
        values = ranks + self._offset if self._offset else ranks
        return values if dtype is None or values.dtype == dtype else values.astype(dtype)

    def __add__(self, other: Any) -> Any:
        if type(other) is int:
            return RankArray(self._num_ranks, self._offset + other, self._turn)
        return np.asarray(self) + _plain(other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        if type(other) is int:
            return RankArray(self._num_ranks, self._offset - other, self._turn)
        return np.asarray(self) - _plain(other)

    def __mod__(self, other: Any) -> Any:
        if type(other) is int and other == self._num_ranks:
            return RankArray(self._num_ranks, 0, ((self._turn or 0) + self._offset) % other)
        return np.asarray(self) % _plain(other)

    def __eq__(self, other: object) -> Any:
        if isinstance(other, RankArray) and _form(self) == _form(other):
            return np.ones(self._num_ranks, dtype=np.bool_)
        return np.asarray(self) == _plain(other)

    def __ne__(self, other: object) -> Any:
        return ~(self == other)

    def at(self, rank: int) -> int:
        """Return the value of *rank*."""
        value = rank if self._turn is None else (rank + self._turn) % self._num_ranks
        return value + self._offset

    @property
    def highest(self) -> int:
        """The greatest value of all ranks."""
        return self._num_ranks - 1 + self._offset

    def ranks_in(self, values: range) -> list[int] | None:
        """Return the ranks whose value is one of *values*, or None if they are more than `FEW`."""
        start, stop = max(values.start, self._offset), min(values.stop, self.highest + 1)
        if stop - start > FEW:
            return None
        turn = self._offset + (self._turn or 0)
        return [(value - turn) % self._num_ranks for value in range(start, stop)]

    @property
    def turn(self) -> int | None:
        """The t of a rotation ``(rank + t) % num_ranks``, or None if it is none."""
        return None if self._offset else self._turn or 0

    def same_as(self, other: Any) -> bool:
        """Return whether *other* is the same formula."""
        return isinstance(other, RankArray) and _form(self) == _form(other)


@lru_cache(maxsize=4)
def _twice(num_ranks: int) -> npt.NDArray[np.int64]:
    """Return the ranks two times over; a rotation is a slice of it."""
    twice = np.tile(np.arange(num_ranks, dtype=np.int64), 2)
    twice.setflags(write=False)
    return twice


def _form(array: RankArray) -> tuple[int, int, int | None]:
    return array._num_ranks, array._offset, array._turn


def _plain(value: Any) -> Any:
    return np.asarray(value) if isinstance(value, LazyArray) else value


def _on_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return *function* as an operator that works on the plain array."""
    return lambda self, *others: function(np.asarray(self), *map(_plain, others))


def _swapped(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return *function* as an operator for whose left side this class stands on the right."""
    return lambda self, other: function(_plain(other), np.asarray(self))


_ARITHMETIC = "add sub mod mul floordiv truediv pow and or xor lshift rshift matmul"
_WITHOUT_SWAPPED = "lt le gt ge eq ne neg pos invert abs"

for _name in _ARITHMETIC.split(" "):
    _function = getattr(operator, f"__{_name}__")
    setattr(LazyArray, f"__r{_name}__", _swapped(_function))
    setattr(LazyArray, f"__{_name}__", _on_arrays(_function))
for _name in _WITHOUT_SWAPPED.split(" "):
    setattr(LazyArray, f"__{_name}__", _on_arrays(getattr(operator, _name)))
