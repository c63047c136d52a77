"""Predictions beside what was measured, and the errors of some of them, in figures and in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, TypeVar

from testbed.output.table import counted

SMALL = 2**19
"""Bytes from which a row tells of the network; smaller ones tell of the software, too."""

CLASSES = ("below 64 KiB", "to 16 MiB", "to 1 GiB", "above")
"""Of sizes, by which errors are reported, as protocols and bounds change with the size."""
_EDGES = (2**16, 2**24, 2**30)


def size_class(nbytes: int) -> str:
    """Return the class of *nbytes*; an edge belongs to the class above it."""
    return CLASSES[sum(nbytes >= edge for edge in _EDGES)]


@dataclass(frozen=True)
class Compared:
    """A prediction beside its measurement; what it is of, a subclass says.

    Attributes:
        predicted: as it was foretold, in the unit of *measured*.
        measured: as it came.
        interval: within which nine of ten measurements are expected; None: nothing was said.
    """

    predicted: float
    measured: float
    interval: tuple[float, float] | None = field(default=None, kw_only=True)

    @property
    def error(self) -> float:
        """Predicted over measured, less one."""
        return self.predicted / self.measured - 1

    @property
    def held(self) -> bool | None:
        """Whether the interval holds the measurement; None where there is none."""
        return None if self.interval is None else self.interval[0] <= self.measured <= self.interval[1]


R = TypeVar("R", bound=Compared)
T = TypeVar("T")
K = TypeVar("K")


@dataclass(frozen=True)
class Errors:
    """Errors of some rows.

    Attributes:
        num_rows: how many.
        median: of the absolute errors.
        ninth: the absolute error that nine in ten do not exceed.
        worst: the largest in absolute value, with its sign.
        bias: median of the signed errors.
        held: the part of the intervals that hold their measurement; None: there are no intervals.
    """

    num_rows: int
    median: float
    ninth: float
    worst: float
    bias: float
    held: float | None

    @classmethod
    def of(cls, rows: Iterable[Compared]) -> Errors | None:
        """Return the errors of *rows*; None where there are none."""
        known = list(rows)
        if not known:
            return None
        errors = [row.error for row in known]
        sizes = sorted(map(abs, errors))
        held = [row.held for row in known if row.held is not None]
        return cls(
            num_rows=len(known),
            median=median(sizes),
            ninth=sizes[math.ceil(0.9 * len(sizes)) - 1],
            worst=max(errors, key=abs),
            bias=median(errors),
            held=sum(held) / len(held) if held else None,
        )

    def as_json(self) -> dict[str, Any]:
        """Return the errors as JSON types; the worst without its sign."""
        return {
            "num_rows": self.num_rows,
            "median_error": self.median,
            "worst_error": abs(self.worst),
            "bias": self.bias,
            "held": self.held,
        }


def grouped(rows: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return *rows* by their *key*, in the order in which keys come first."""
    groups: dict[K, list[T]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups


def by_class(rows: Iterable[R], nbytes: Callable[[R], int]) -> dict[str, Errors | None]:
    """Return the errors of *rows* by class of size, in ascending order; None where a class has no row."""
    classes = grouped(rows, lambda row: size_class(nbytes(row)))
    return {name: Errors.of(classes.get(name, ())) for name in CLASSES}


def worst(rows: Iterable[R], number: int) -> list[R]:
    """Return the *number* of *rows* that are furthest off, the worst first."""
    return sorted(rows, key=lambda row: -abs(row.error))[:number]


def figures_by_size(rows: Sequence[R], nbytes: Callable[[R], int]) -> Mapping[str, Any]:
    """Return the figures of *rows*, sizes from `SMALL` on and smaller ones apart, as JSON types."""
    large = Errors.of(row for row in rows if nbytes(row) >= SMALL)
    small = Errors.of(row for row in rows if nbytes(row) < SMALL)
    return {
        "num_rows": len(rows),
        "median_error": None if large is None else large.median,
        "worst_error": None if large is None else abs(large.worst),
        "small_median_error": None if small is None else small.median,
    }


def far_off(errors: Errors | None, of: str = "of the time") -> str:
    """Return in a sentence how far predictions are off."""
    if errors is None:
        return "No row is large enough to judge by."
    what = "%" if of == "of the time" else "points"
    return (
        f"By {100 * errors.median:.1f} {what} {of} (median of {counted(errors.num_rows, 'row')}), at worst "
        f"{100 * errors.worst:+.1f} {what}."
    )


def signed(error: float) -> str:
    """Return *error* in percent, with its sign."""
    return f"{100 * error:+.1f} %"
