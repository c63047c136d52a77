"""Rows of a validation: what was predicted beside what was measured, and how far apart they are."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from testbed.calibration.confidence import SMALL, Compared, figures_by_size
from testbed.output.table import grouped


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
class Row(Compared):
    """A prediction and its measurement, the median of repetitions, in seconds.

    Attributes:
        prediction: what was foretold.
        seconds: of each repetition.
    """

    prediction: Prediction
    seconds: tuple[float, ...]

    @classmethod
    def of(cls, prediction: Prediction, seconds: Sequence[float]) -> Row:
        """Return *prediction* beside *seconds*, those of each repetition."""
        return cls(prediction.predicted_seconds, median(seconds), prediction, tuple(seconds))

    @property
    def spread(self) -> float:
        """How far the repetitions lie apart: the slowest less the quickest, over the median."""
        return (max(self.seconds) - min(self.seconds)) / self.measured

    @property
    def kind(self) -> str:
        """What was measured: the collective, or the family of other cases."""
        one = self.prediction
        return one.collective if one.family == "collective" else one.family

    def as_json(self) -> dict[str, Any]:
        """Return the row as JSON types."""
        return {
            **asdict(self.prediction),
            "measured_seconds": self.measured,
            "spread": self.spread,
            "error": self.error,
            "seconds": list(self.seconds),
        }

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Row:
        """Return the row of which *content* is the `as_json`."""
        names = Prediction.__dataclass_fields__
        return cls.of(Prediction(**{name: content[name] for name in names}), content["seconds"])


def figures(rows: Sequence[Row]) -> dict[str, Any]:
    """Return how far *rows* are off; *beyond_spread* is what is left beyond the row's own spread."""
    beyond = [max(0.0, abs(row.error) - row.spread) for row in rows if row.prediction.nbytes >= SMALL]
    return {
        **figures_by_size(rows, lambda row: row.prediction.nbytes),
        "worst_beyond_spread": max(beyond, default=None),
    }


def by_family(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return rows by collective and algorithm, those of other families by these."""
    return grouped(rows, lambda row: f"{row.kind} {row.prediction.algorithm}")


def digest(predictions: Sequence[Prediction]) -> str:
    """Return the SHA-256 of *predictions* as they are written down."""
    return hashlib.sha256(written(predictions).encode()).hexdigest()


def written(predictions: Sequence[Prediction]) -> str:
    """Return *predictions* as they are written down: a line of JSON each."""
    return "".join(json.dumps(asdict(one), sort_keys=True) + "\n" for one in predictions)
