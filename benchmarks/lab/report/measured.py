"""Tables of measurements, anybody's: errors by family, parallelism and limit, memory, and the worst."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any

from benchmarks.lab.predicted.judging import JudgedRow, Table, lost_to_scaling
from benchmarks.lab.predicted.sets import SETS
from testbed.calibration.confidence import Compared, Errors, far_off, signed, worst
from testbed.output.table import counted, grouped
from testbed.result import Grid, Part, Result, Rows, Text, asked, found, quiet, warning

MODEL = (
    "kernels by the constants of the device's file, collectives of a node by the network's, training steps "
    "composed of both; nothing that was measured is read before the predictions are written down"
)
WORST, WORST_OF_KERNELS = 10, 3
_HEADS = ("rows", "median", "nine in ten", "worst", "signed")
_UNSAID = ("framework", "kernel", "vocab", "tied", "kv_heads")


def measured_result(tables: Sequence[Table], seed: int, predictions: Any) -> Result:
    """Return the errors of all tables."""
    rows = [one for table in tables for one in table.judged()]
    return Result(
        question="How far are measured rows from what is predicted of them?",
        answer=far_off(Errors.of(rows)),
        method="simulated",
        model=MODEL,
        rows=Rows(
            (*asked("set", "kind", "parallelism", "limit"), *found("predicted", "measured", "error")),
            [
                {name: getattr(one, name) for name in (
                    "set", "kind", "parallelism", "limit", "predicted", "measured", "error"
                )}
                for one in rows
            ],
        ),
        parts=[*measured_section(tables, seed), quiet(f"Predicted: {MODEL}.")],
        seed=seed,
        files={"Predictions": predictions},
    )  # fmt: skip


def measured_section(tables: Sequence[Table], seed: int) -> list[Part]:
    """Return the errors for a document."""
    rows = [one for table in tables for one in table.judged()]
    trainings = [one for one in rows if one.parallelism]
    said = "; ".join(
        f"{own.name} {len(own.rows):,} of {own.of:,} `{own.digest[:16]}`" for own in tables if own.rows
    )
    parts: list[Part] = [Text([f"Rows, drawn by seed {seed}, and SHA-256 of their predictions: {said}."])]
    parts.append(_errors("family", rows, lambda one: f"{one.set}: {one.kind}"))
    if trainings:
        parts.append(_errors("parallelism", trainings, lambda one: one.parallelism))
        parts.append(_errors("limit", trainings, lambda one: one.limit))
        parts.append(Text([" ".join(_of_trainings(tables, trainings))]))
    parts += [_worst(name, own) for name, own in grouped(rows, lambda one: one.set).items()]
    reasons = [
        f"{table.name}: {reason}: {counted(count, 'row')} left out."
        for table in tables
        for reason, count in table.refused.items()
    ]
    return [*parts, warning(*reasons)] if reasons else parts


def _errors(what: str, rows: Sequence[JudgedRow], key: Callable[[JudgedRow], str]) -> Grid:
    lines = [(name, *_cells(Errors.of(own))) for name, own in sorted(grouped(rows, key).items())]
    return Grid((what, *_HEADS), lines, title=f"Errors by {what}")


def _cells(errors: Errors | None) -> tuple[str, ...]:
    assert errors is not None
    shares = (f"{100 * one:.1f} %" for one in (errors.median, errors.ninth))
    return str(errors.num_rows), *shares, signed(errors.worst), signed(errors.bias)


def _of_trainings(tables: Sequence[Table], rows: Sequence[JudgedRow]) -> Iterator[str]:
    """Yield sentences about lost efficiency, memory, and what fits."""
    if scaled := lost_to_scaling(rows):
        off = [abs(predicted - measured) for predicted, measured in scaled]
        within = sum(one <= 0.06 for one in off)
        yield (
            f"Efficiency lost from the fewest nodes to more, layouts alike but for data parallelism: off by "
            f"{100 * median(off):.1f} points (median of {len(off)}), {within} within 6."
        )
    peaks: list[Compared] = [one for table in tables for one in table.peaks()]
    if (errors := Errors.of(peaks)) is not None:
        yield (
            f"Peak of memory: off by {100 * errors.median:.1f} % (median of {errors.num_rows}), "
            f"nine in ten within {100 * errors.ninth:.0f} %."
        )
    fits = [one for table in tables for one in table.fits()]
    ran, failed = ([foretold for foretold, did in fits if did is want] for want in (True, False))
    if ran and failed:
        yield (
            f"Of {len(failed)} steps that did not run {failed.count(False)} were foretold not to fit "
            f"({100 * failed.count(False) / len(failed):.0f} %), of {len(ran)} that ran {ran.count(False)} "
            f"({100 * ran.count(False) / len(ran):.0f} %)."
        )


def _worst(name: str, rows: Sequence[JudgedRow]) -> Grid:
    lines = []
    for one in worst(rows, WORST if rows[0].parallelism else WORST_OF_KERNELS):
        needed = [column for column in SETS[name].needed if column not in _UNSAID]
        row = " ".join(f"{column} {one.row[column]}" for column in needed)
        lines.append((row, one.limit, f"{one.predicted:,.6g}", f"{one.measured:,.6g}", signed(one.error)))
    heads = ("row", "limit", "predicted", "measured", "error")
    return Grid(heads, lines, text_columns=2, title=f"The {len(lines)} worst of {name}")
