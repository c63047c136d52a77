"""Measurements of incast: flows that end in one port of a switch."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from benchmarks.lab.shaped.incast import FABRIC, REPETITIONS, IncastRow
from benchmarks.lab.shaped.shaping import COMMON
from testbed.calibration.confidence import Errors, far_off, signed
from testbed.output.table import percent, seconds, spell_size
from testbed.result import Grid, Part, Result, Rows, Text, asked, found, quiet

MODEL = (
    f"predicted: links at their rates less headers, ports of the fabric {FABRIC}; collectives by events, "
    f"transport model gloo; measured: median of {REPETITIONS} repetitions, all hosts beginning at one "
    "moment; error: predicted / measured - 1"
)
HEADS = (
    *("what", "flows", "bytes", "got", "timeouts"),
    *("predicted", "measured", "error", "links\nalone"),
)
MARKS = {"calibrates": " *", "judges": "", "elsewhere": " °"}
COLUMNS = (
    *asked("case", "flows", "nbytes", "rate_mbps", "role", "port_queue", "train_frames"),
    *found("links_seconds", "predicted_seconds", "measured_seconds", "part", "error", "links_error"),
    *found("seconds", "timeouts"),
)


def incast_result(rows: Sequence[IncastRow]) -> Result:
    """Return what was predicted and measured of flows that share a port."""
    errors = Errors.of(_judging(rows))
    return Result(
        question="What do flows that end in one port of a switch get of it?",
        answer=far_off(errors),
        method=["simulated", "measured"],
        model=MODEL,
        assumptions={"fabric": FABRIC},
        rows=Rows(COLUMNS, [row.as_json() for row in rows]),
        asked=("fabric", "port_queue"),
        body={
            "fabric": FABRIC,
            "port_queue": COMMON.port_queue,
            "median_error": None if errors is None else errors.median,
            "links_median_error": _of_links(rows),
        },
        parts=[
            _table(rows),
            quiet(f"* calibrates the table; ° is not as the table assumes.  {MODEL}.", gap=False),
        ],
    )


def incast_section(rows: Sequence[IncastRow]) -> Sequence[Part]:
    """Return what a document says of *rows*."""
    errors, alone = Errors.of(_judging(rows)), _of_links(rows)
    judged = (
        ""
        if errors is None or alone is None
        else f": {percent(errors.median)}, of links alone {percent(alone)}"
    )
    return [Text([f"Median error of rows that judge{judged}."]), _table(rows)]


def _table(rows: Sequence[IncastRow]) -> Grid:
    return Grid(HEADS, [_cells(row) for row in rows])


def _judging(rows: Sequence[IncastRow]) -> list[IncastRow]:
    return [row for row in rows if row.case.role == "judges"]


def _of_links(rows: Sequence[IncastRow]) -> float | None:
    """Return the median absolute error of links alone, of rows that judge; None where there are none."""
    errors = [abs(row.links_error) for row in _judging(rows)]
    return median(errors) if errors else None


def _cells(row: IncastRow) -> tuple[str, ...]:
    case = row.case
    return (
        f"{case.name}{MARKS[case.role]}",
        str(case.flows),
        spell_size(case.nbytes),
        f"{row.part:.2f}",
        f"{row.times.timeouts:.1f}",
        seconds(row.predicted),
        seconds(row.measured),
        signed(row.error),
        signed(row.links_error),
    )
