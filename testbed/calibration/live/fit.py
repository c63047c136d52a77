"""Fit of a calibration: the constants with which the simulator answers what was measured.

Gauss-Newton on the simulation itself.  The residual of a row is the error of the predicted time, over the
measured time plus what 64 KiB take on the wire: an error counts by the part of the time that it is, but
below that size, where a network is judged by latency alone, no more than it would there.  A row counts the
less the more its repetitions differ, and one that the rest contradict the less the more they do (Huber).
No time and no rate may come out negative.

Entries of a sharing table are held together, weakly, so that those of which the rows say nothing are as
their neighbours.  The interval of a constant is that in which it lies in 95 of 100 bootstraps: rows drawn
again with replacement, and fitted to the simulation linearised where the fit has ended.

Source: Huber, "Robust statistics", 1981, chapter 7; Efron and Tibshirani, "An introduction to the bootstrap",
1993, chapter 9 (bootstrapping pairs).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from collectives.errors import NotSupportedError
from testbed.calibration.confidence import Compared
from testbed.calibration.least_squares import Floats, bounded
from testbed.calibration.live import constants
from testbed.calibration.live.calibration import LinkClass
from testbed.calibration.live.plan import LARGE, Row, Wiring, received_by_a_rank

ITERATIONS = 5
NEW_SLOPES = 2
BOOTSTRAPS = 200
CONFIDENCE = 0.95
SEED = 0
LEAST_SPREAD = 0.01
"""Taken for a row whose repetitions differ less: what no model of a network does better than."""
_HUBER = 1.5
_ENOUGH = 1e-3


@dataclass(frozen=True)
class FittedRow(Compared):
    """A row, in seconds, beside what the simulator says of it."""

    row: Row


@dataclass(frozen=True)
class Fitted:
    """What a fit has found.

    Attributes:
        names: of the constants.
        values: of them, shape (constants,).
        low: end of each interval.
        high: the other end.
        rows: that were fitted.
        predicted: seconds of each row with the constants found.
        wiring: who was taken to share what.
    """

    names: tuple[str, ...]
    values: Floats
    low: Floats
    high: Floats
    rows: tuple[Row, ...]
    predicted: Floats
    wiring: Wiring

    @property
    def found(self) -> dict[str, float]:
        """The constants by their names."""
        return dict(zip(self.names, self.values.tolist(), strict=True))

    @property
    def compared(self) -> list[FittedRow]:
        """The rows, each beside what is predicted with the constants found."""
        pairs = zip(self.rows, self.predicted.tolist(), strict=True)
        return [FittedRow(seconds, row.median, row) for row, seconds in pairs]

    @property
    def errors(self) -> Floats:
        """Predicted over measured, less 1, of each row."""
        return np.array([own.error for own in self.compared])

    @property
    def residual(self) -> float:
        """Mean of the absolute errors."""
        return float(np.abs(self.errors).mean())


def fit(rows: Sequence[Row], wiring: Wiring, rates: Mapping[LinkClass, float] | None = None) -> Fitted:
    """Return the constants that answer *rows* best.

    Args:
        rows: what was measured, of at least one large size.
        wiring: who shares what.
        rates: bytes/s of links whose rates are known, which nothing then exceeds; others are found.

    Raises:
        NotSupportedError: too little was measured to find as many constants.
    """
    problem = _Problem.of(rows, wiring, rates)
    if len(rows) < len(problem.names):
        raise NotSupportedError(
            f"calibration: {len(rows)} rows are too few for {len(problem.names)} constants; measure longer"
        )
    values = problem.start()
    times = problem.times(values)
    for iteration in range(ITERATIONS):
        if iteration < NEW_SLOPES:  # times are nearly linear in the constants, so these soon hold
            jacobian = problem.jacobian(values, times)
        proposed = problem.solve(values, times, jacobian, np.ones(len(rows)))
        better = problem.times(proposed)
        moved = np.abs(better - times) / problem.scale
        values, times = proposed, better
        if moved.max() < _ENOUGH:
            break

    drawn = np.random.default_rng(SEED)
    again = [
        problem.solve(values, times, jacobian, np.bincount(chosen, minlength=len(rows)).astype(float))
        for chosen in drawn.integers(len(rows), size=(BOOTSTRAPS, len(rows)))
    ]
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(again, [tail, 100 - tail], axis=0)
    ends = np.minimum(low, values), np.maximum(high, values)
    return Fitted(tuple(problem.names), values, *ends, tuple(rows), times, wiring)


@dataclass(frozen=True)
class _Problem:
    """The least squares.

    Attributes:
        rows: what was measured.
        wiring: who shares what.
        rates: that are known.
        names: of the constants.
        measured: seconds of each row.
        scale: seconds over which an error of each row counts.
        weight: of each row, before the rest contradict it.
        least: below which no constant may come.
    """

    rows: Sequence[Row]
    wiring: Wiring
    rates: Mapping[LinkClass, float] | None
    names: list[str]
    measured: Floats
    scale: Floats
    weight: Floats
    least: Floats

    @classmethod
    def of(cls, rows: Sequence[Row], wiring: Wiring, rates: Mapping[LinkClass, float] | None) -> _Problem:
        names = constants.names_of(wiring)
        byte = _byte_seconds(rows)
        measured = np.array([row.median for row in rows])
        scale = measured + LARGE * byte
        spread = np.array([row.spread for row in rows]) * measured / scale
        weight = measured / scale / np.hypot(spread, LEAST_SPREAD)
        least = np.array([constants.least_value(name, rates or {}, byte) for name in names])
        return cls(rows, wiring, rates, names, measured, scale, weight, least)

    def start(self) -> Floats:
        """Return where to begin: what the largest rows take for a byte, and some microseconds."""
        byte = _byte_seconds(self.rows)
        first = [constants.first_value(name, byte) for name in self.names]
        started: Floats = np.maximum(np.array(first), self.least)
        return started

    def times(self, values: Floats, of: Sequence[int] | None = None) -> Floats:
        """Return what the simulator says of each row, or of those with the numbers *of*."""
        found = dict(zip(self.names, values.tolist(), strict=True))
        topology = constants.network(self.wiring, found, self.rates)
        rows = self.rows if of is None else [self.rows[number] for number in of]
        return np.array([constants.predicted(row.pattern, topology, found) for row in rows])

    def jacobian(self, values: Floats, times: Floats) -> Floats:
        """Return how the time of each row grows with each constant, shape (rows, constants)."""
        found = np.zeros((len(self.rows), len(self.names)))
        for number, name in enumerate(self.names):
            step = constants.step_of(name, float(values[number]), _byte_seconds(self.rows))
            moved = values.copy()
            moved[number] += step
            concerned = [
                place for place, row in enumerate(self.rows) if constants.concerns(name, row.pattern)
            ]
            found[concerned, number] = (self.times(moved, concerned) - times[concerned]) / step
        return found

    def ties(self) -> Floats:
        """Return rows that hold entries of a sharing table together, as far as nothing else holds them.

        A link that is never full with so many flows tells nothing of what they would get of it.
        """
        tied = [
            (one, self.names.index(other))
            for one, name in enumerate(self.names)
            for other in constants.neighbours(name)
            if other in self.names
        ]
        rows = np.zeros((len(tied), len(self.names)))
        for row, (one, other) in zip(rows, tied, strict=True):
            row[one], row[other] = 1, -1
        return rows / _byte_seconds(self.rows)

    def solve(self, values: Floats, times: Floats, jacobian: Floats, counts: Floats) -> Floats:
        """Return the constants at which the linearised residuals are least, each row counting so often."""
        matrix, target = jacobian / self.scale[:, None], (self.measured - times) / self.scale
        ties = self.ties()
        found, weight = values, self.weight
        for _ in range(3):
            rooted = np.sqrt(counts) * np.sqrt(weight * self.weight)
            stacked = np.concatenate([matrix * rooted[:, None], ties])
            shift = bounded(stacked, np.append(target * rooted, -ties @ values), self.least - values)
            found = values + shift
            rest = np.abs(target - matrix @ shift) * self.weight
            weight = self.weight * np.minimum(1, _HUBER / np.maximum(rest, 1e-12))
        return found


def _byte_seconds(rows: Sequence[Row]) -> float:
    """Return what a byte takes in the largest rows, roughly."""
    largest = max(row.pattern.nbytes for row in rows)
    each = [row.median / received_by_a_rank(row.pattern) for row in rows if row.pattern.nbytes > largest // 2]
    return median(each)
