"""Constants of measured collectives: the least of three lines, fitted to a table, and how far it holds.

For every way to divide the sizes into at most three runs (of many sizes, at 24 places) each run gets the
line of least relative error (linear least squares of predicted over measured); the lines whose least is
nearest to all rows, by mean relative error, win, and then each line is fitted once more to the rows on which
it is the least.  Relative, so that small messages count as much as large ones.

The spread is not that of the residuals, which know the rows, but is got by leaving sizes out: each but the
first and last (of many, 32) is predicted from the others, and nine of ten of these errors lie within the
spread (the next larger order statistic, as in split conformal prediction: Vovk, Gammerman and Shafer,
*Algorithmic Learning in a Random World*, 2005).  Where several systems were measured, each is left out
whole, too.
"""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median_low

import numpy as np

from collectives.timing.formulas.measured import LARGE, least_of, lines_of, measured_at
from sim.measured import PROTOCOLS, Line, MeasuredCurve
from sim.units import SECOND
from testbed.calibration.confidence import Compared
from testbed.calibration.least_squares import Floats, bounded
from testbed.calibration.tables.rows import MeasuredRow
from testbed.output.table import grouped

COVERAGE = 0.9
LEAST_SPREAD = 0.02
"""Of tables beside themselves: in place and out of place differ by so much."""
DISTURBED = 1.25
MAX_CUTS = 24
MAX_LEFT_OUT = 32
MAX_BANDWIDTH = 10**15
"""Bytes/s of a line that does not rise."""

Points = dict[int, float]
"""Seconds by size."""


@dataclass(frozen=True)
class Held(Compared):
    """A row in seconds, predicted without knowing it.

    Attributes:
        nbytes: its size.
        system: of the row, where the system was left out whole.
    """

    nbytes: int
    system: str = ""


@dataclass(frozen=True)
class FittedCurve:
    """A curve, and how it predicts rows that it does not know.

    Attributes:
        curve: the constants, with their spread.
        num_rows: rows in the fit.
        held: every size but the first and last, predicted from the others.
        across: every system, predicted from the others; none where there is one.
    """

    curve: MeasuredCurve
    num_rows: int
    held: tuple[Held, ...]
    across: tuple[Held, ...] = ()


def fit_curves(rows: Iterable[MeasuredRow], source: str = "") -> list[FittedCurve]:
    """Return a curve for every collective, number of nodes and ranks of a node among *rows*."""
    groups = grouped(rows, lambda row: (row.collective, row.num_nodes, row.ranks_per_node))
    return [fit_curve(group, source) for _, group in sorted(groups.items())]


def fit_curve(rows: Sequence[MeasuredRow], source: str = "") -> FittedCurve:
    """Return the curve of *rows*, which are of one collective on as many nodes and ranks.

    Of several rows of a system at one size the median counts (of two the shorter time, as whatever disturbs a
    measurement makes it longer), and of several systems each alike.
    """
    systems = {name: _undisturbed(points) for name, points in _by_system(rows).items()}
    points = _pooled(systems.values())
    first = rows[0]
    curve = MeasuredCurve(
        collective=first.collective,
        num_nodes=first.num_nodes,
        ranks_per_node=first.ranks_per_node,
        lines=_lines(points),
        sizes=tuple(sorted(points)),
        systems=tuple(sorted(systems)),
        source=source,
    )
    curve = replace(curve, factors=_factors(curve, points))

    held = tuple(
        Held(_predicted(_without(systems, size), size), points[size], size)
        for size in _evenly(sorted(points)[1:-1], MAX_LEFT_OUT)
    )
    across = tuple(_across(systems)) if len(systems) > 1 else ()
    errors = [*held, *across]
    small = [own.error for own in errors if own.nbytes < LARGE]
    large = [own.error for own in errors if own.nbytes >= LARGE]
    curve = replace(curve, spread=spread_of(small or large), spread_large=spread_of(large or small))
    return FittedCurve(curve, len(rows), held, across)


def halves(rows: Sequence[MeasuredRow]) -> Iterator[Held]:
    """Yield every size of *rows* but the first and last, predicted from each second one, without itself."""
    points = _pooled(map(_undisturbed, _by_system(rows).values()))
    sizes = sorted(points)
    for known, unknown in ((sizes[::2], sizes[1::2]), (sizes[1::2], sizes[::2])):
        for size in unknown:
            if len(known) > 1 and known[0] < size < known[-1]:
                predicted = _predicted({own: points[own] for own in known}, size)
                yield Held(predicted, points[size], size)


def _by_system(rows: Sequence[MeasuredRow]) -> dict[str, Points]:
    times: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        times[row.system][row.nbytes].append(row.seconds)
    return {name: {size: median_low(own) for size, own in sizes.items()} for name, sizes in times.items()}


def _undisturbed(points: Points) -> Points:
    """Return *points* without those times that are longer by `DISTURBED` than that of a larger size.

    Protocols change so that a larger message is a little faster, never by so much: something else ran there.
    Such a time becomes that of the larger size.
    """
    found: Points = {}
    least = math.inf
    for size in sorted(points, reverse=True):
        found[size] = least if points[size] > DISTURBED * least else points[size]
        least = min(least, found[size])
    return found


def _pooled(systems: Iterable[Points]) -> Points:
    """Return the geometric mean of the systems at each size."""
    logs: dict[int, list[float]] = defaultdict(list)
    for points in systems:
        for size, seconds in points.items():
            logs[size].append(math.log(seconds))
    return {size: math.exp(sum(own) / len(own)) for size, own in logs.items()}


def _without(systems: dict[str, Points], left_out: int) -> Points:
    return _pooled({s: t for s, t in points.items() if s != left_out} for points in systems.values())


def _predicted(points: Points, nbytes: int) -> float:
    """Return what a curve through *points* says of *nbytes*."""
    bare = MeasuredCurve("all_reduce", 1, 1, _lines(points), tuple(sorted(points)))
    return measured_at(replace(bare, factors=_factors(bare, points)), nbytes)


def _across(systems: dict[str, Points]) -> Iterable[Held]:
    """Yield every row of every system, as far as the others reach, predicted from the others."""
    for name, points in systems.items():
        others = _pooled(own for other, own in systems.items() if other != name)
        for size, seconds in points.items():
            if min(others) <= size <= max(others):
                yield Held(_predicted(others, size), seconds, size, name)


def spread_of(errors: Sequence[float]) -> float:
    """Return s such that nine of ten errors lie between 1/(1+s) and 1+s; of few, a bit beyond the worst."""
    logs = sorted(abs(math.log1p(error)) for error in errors)
    if not logs:
        return LEAST_SPREAD
    rank = math.ceil(COVERAGE * (len(logs) + 1))
    log = logs[rank - 1] if rank <= len(logs) else 1.5 * logs[-1]
    return round(max(math.expm1(log), LEAST_SPREAD), 4)


def _factors(curve: MeasuredCurve, points: Points) -> tuple[float, ...]:
    lines = lines_of(curve)
    return tuple(round(points[size] / least_of(lines, size)[0], 4) for size in curve.sizes)


def _lines(points: Points) -> tuple[Line, ...]:
    """Return the lines whose least is nearest to *points*."""
    sizes = np.array(sorted(points), dtype=np.float64)
    seconds = np.array([points[int(size)] for size in sizes])
    inner = _evenly(range(1, len(sizes)), MAX_CUTS)
    runs = {
        (i, j): _line(sizes[i:j], seconds[i:j])
        for i, j in itertools.combinations((0, *inner, len(sizes)), 2)
        if j - i > 1 or len(sizes) == 1
    }

    best: tuple[float, list[tuple[float, float]]] = (math.inf, [])
    for number in range(1, len(PROTOCOLS) + 1):
        for cuts in itertools.combinations(inner, number - 1):
            edges = itertools.pairwise((0, *cuts, len(sizes)))
            lines = [runs[edge] for edge in edges if edge in runs]
            if len(lines) == number:
                best = min(best, (_error(lines, sizes, seconds), lines), key=lambda own: own[0] - 1e-12)
    lines = _refined(best[1], sizes, seconds)

    return tuple(
        Line(round(latency * SECOND), max(1, round(1 / max(per_byte, 1 / MAX_BANDWIDTH))))
        for latency, per_byte in sorted(lines)
    )


def _evenly(values: Sequence[int], most: int) -> list[int]:
    """Return at most so many of *values*, evenly from the first to the last."""
    if len(values) <= most:
        return list(values)
    return [values[round(k * (len(values) - 1) / (most - 1))] for k in range(most)]


def _refined(lines: list[tuple[float, float]], sizes: Floats, seconds: Floats) -> list[tuple[float, float]]:
    """Return each line fitted to the points on which it is the least, as long as that brings them nearer."""
    error = _error(lines, sizes, seconds)
    while True:
        least = np.array([latency + per_byte * sizes for latency, per_byte in lines]).argmin(axis=0)
        fitted = [
            _line(sizes[least == k], seconds[least == k]) if (least == k).sum() > 1 else line
            for k, line in enumerate(lines)
        ]
        nearer = _error(fitted, sizes, seconds)
        if nearer >= error - 1e-9:
            return lines
        lines, error = fitted, nearer


def _error(lines: list[tuple[float, float]], sizes: Floats, seconds: Floats) -> float:
    least = np.array([latency + per_byte * sizes for latency, per_byte in lines]).min(axis=0)
    return float(np.abs(least / seconds - 1).mean())


def _line(sizes: Floats, seconds: Floats) -> tuple[float, float]:
    """Return latency and seconds per byte, neither negative, of least squares of the relative error."""
    if len(sizes) == 1:
        return float(seconds[0]), 0.0
    columns = np.stack([1 / seconds, sizes / seconds], axis=1)
    latency, per_byte = bounded(columns, np.ones(len(sizes)), np.zeros(2), ridge=0.0).tolist()
    return latency, per_byte
