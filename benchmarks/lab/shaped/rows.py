"""Rows of a validation: what was predicted beside what was measured, and how far apart they are."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

FROM_NBYTES = 512 << 10
"""Rows of this size and more tell of the network; smaller ones of the software, too."""


@dataclass(frozen=True)
class Prediction:
    """What a row is to be, written down before it is measured.

    Attributes:
        network: name of the file.
        family: of cases (see `benchmarks.lab.shaped.cases`).
        case: what is measured, in words.
        collective: its name; ``training_step`` for a step.
        algorithm: ``native``, one of ours, or whose reducer with which algorithm.
        nbytes: size of the buffer, or of all gradients.
        ranks: hosts that take part.
        predicted_seconds: the time foretold.
    """

    network: str
    family: str
    case: str
    collective: str
    algorithm: str
    nbytes: int
    ranks: int
    predicted_seconds: float


@dataclass(frozen=True)
class Row:
    """A prediction and its measurement.

    Attributes:
        prediction: what was foretold.
        seconds: of each repetition.
    """

    prediction: Prediction
    seconds: tuple[float, ...]

    @property
    def measured_seconds(self) -> float:
        """Median of the repetitions."""
        return median(self.seconds)

    @property
    def spread(self) -> float:
        """How far the repetitions lie apart: the slowest less the quickest, over the median."""
        return (max(self.seconds) - min(self.seconds)) / self.measured_seconds

    @property
    def error(self) -> float:
        """Predicted over measured, less one: negative where it took longer than foretold."""
        return self.prediction.predicted_seconds / self.measured_seconds - 1

    def as_json(self) -> dict[str, Any]:
        """Return the row as JSON types."""
        return {
            **asdict(self.prediction),
            "measured_seconds": self.measured_seconds,
            "spread": self.spread,
            "error": self.error,
            "seconds": list(self.seconds),
        }

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Row:
        """Return the row of which *content* is the `as_json`."""
        names = Prediction.__dataclass_fields__
        return cls(Prediction(**{name: content[name] for name in names}), tuple(content["seconds"]))


@dataclass(frozen=True)
class Errors:
    """How far rows are off.

    Attributes:
        num_rows: how many there are.
        median_error: of the absolute errors of rows from `FROM_NBYTES` on; None: there are none.
        worst_error: the largest of them.
        worst_beyond_spread: the largest of what is left of them beyond the row's own spread.
        small_median_error: median of the absolute errors of smaller rows; None: there are none.
    """

    num_rows: int
    median_error: float | None
    worst_error: float | None
    worst_beyond_spread: float | None
    small_median_error: float | None

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Errors:
        """Return the errors of *rows*."""
        held = list(rows)
        large = [row for row in held if row.prediction.nbytes >= FROM_NBYTES]
        small = [abs(row.error) for row in held if row.prediction.nbytes < FROM_NBYTES]
        return cls(
            len(held),
            median(abs(row.error) for row in large) if large else None,
            max((abs(row.error) for row in large), default=None),
            max((max(0.0, abs(row.error) - row.spread) for row in large), default=None),
            median(small) if small else None,
        )


def by_family(rows: Sequence[Row]) -> dict[str, Errors]:
    """Return the errors of rows, by collective and algorithm, of other families by these."""
    held: dict[str, list[Row]] = {}
    for row in rows:
        one = row.prediction
        name = one.collective if one.family == "collective" else one.family
        held.setdefault(f"{name} {one.algorithm}", []).append(row)
    return {name: Errors.of(own) for name, own in held.items()}


def digest(predictions: Sequence[Prediction]) -> str:
    """Return the SHA-256 of *predictions* as they are written down."""
    return hashlib.sha256(written(predictions).encode()).hexdigest()


def written(predictions: Sequence[Prediction]) -> str:
    """Return *predictions* as they are written down: a line of JSON each."""
    return "".join(json.dumps(asdict(one), sort_keys=True) + "\n" for one in predictions)
