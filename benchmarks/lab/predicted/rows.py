"""Tables of measured rows: read, sampled, divided into those that calibrate and those that judge."""

from __future__ import annotations

import csv
import hashlib
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TypeAlias, TypeVar

from testbed.errors import UsageError

Row: TypeAlias = Mapping[str, str]
T = TypeVar("T")

KEPT_BACK = 0.25


def read_rows(path: Path, needed: Iterable[str]) -> list[dict[str, str]]:
    """Return the rows of the CSV at *path*.

    Raises:
        UsageError: there is no such file, no row, or a column of *needed* is missing.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            rows = list(reader)
            columns = reader.fieldnames or ()
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path}: cannot be read as CSV: {error}") from None
    if missing := [name for name in needed if name not in columns]:
        raise UsageError(
            f"{path}: expected columns {', '.join(needed)}; {', '.join(missing)} missing among "
            f"{', '.join(columns) or 'none'}"
        )
    if not rows:
        raise UsageError(f"{path}: expected rows below the names of the columns, found none")
    return rows


def sampled(rows: Sequence[T], count: int | None, seed: int) -> list[T]:
    """Return *count* of the rows, drawn by *seed*, in their order; all where *count* is None or more."""
    if count is None or count >= len(rows):
        return list(rows)
    return [rows[number] for number in sorted(random.Random(seed).sample(range(len(rows)), count))]


def is_kept_back(row: Row, columns: Iterable[str]) -> bool:
    """Return whether a row judges: by a hash of its shape, so that all GPUs have the same shapes in it."""
    shape = "own " + " ".join(row[name] for name in columns)
    return int(hashlib.sha256(shape.encode()).hexdigest()[:8], 16) / 2**32 < KEPT_BACK


@dataclass(frozen=True)
class Errors:
    """Errors of predictions, as parts of what was measured.

    Attributes:
        count: rows.
        median: of the absolute errors.
        ninth: nine in ten are at most this, absolutely.
        signed: median of the errors with their signs.
    """

    count: int
    median: float
    ninth: float
    signed: float

    @classmethod
    def of(cls, errors: Iterable[float]) -> Errors | None:
        """Return those of *errors*, None of none."""
        signed = sorted(errors)
        if not signed:
            return None
        sizes = sorted(map(abs, signed))
        return cls(len(sizes), median(sizes), sizes[int(0.9 * (len(sizes) - 1))], median(signed))

    def __str__(self) -> str:
        return f"{100 * self.median:.1f} / {100 * self.ninth:.0f} ({100 * self.signed:+.1f})"


def grouped(rows: Iterable[Row], key: Callable[[Row], str]) -> dict[str, list[Row]]:
    """Return the rows by what *key* says of them, in the order of their first."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(key(row), []).append(row)
    return groups
