"""Result of a calibration from a table: what collectives take, as a curve for each of a machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.output.table import counted, percent
from testbed.result import Grid, Part, Result, Rows, Text, asked, found, quiet

if TYPE_CHECKING:
    from testbed.calibration.tables.calibration import TableCalibration

MODEL = (
    "the least of three lines (latency + size / bandwidth) for each collective and number of nodes, times "
    "what was measured beside it; errors are of sizes that were left out of the fit"
)

COLUMNS = (
    *asked("machine", "collective", "num_nodes", "ranks_per_node"),
    *found("num_rows", "lines", "sizes", "factors", "spread", "spread_large", "left_out_median_error"),
    *found("systems", "source", "carried"),
)
HEADS = (
    "collective", "nodes", "rows", "least of", "error\n< 64 KiB", "\n- 16 MiB", "\n- 1 GiB", "\nabove",
    "spread",
)  # fmt: skip


def table_result(path: Path, calibrations: Sequence[TableCalibration], written: Sequence[Path]) -> Result:
    """Return the curves of the machines in a table.

    Args:
        path: of the table.
        calibrations: of each machine.
        written: their network files.
    """
    machines = [own.as_json() for own in calibrations]
    rows = [{"machine": own["machine"], **curve} for own in machines for curve in own["curves"]]
    return Result(
        question=f"What do the collectives of {path} take?",
        answer=_answer(calibrations),
        method="measured",
        model=MODEL,
        rows=Rows(COLUMNS, rows),
        asked=("table",),
        body={"table": str(path), "written": [str(one) for one in written], "machines": machines},
        parts=[
            *(part for own in calibrations for part in _machine(own)),
            quiet(
                "Error: median of sizes that were left out. Spread: nine of ten lie within, below and from "
                "16 MiB.",
                gap=False,
            ),
            Text([f"Written: {one}" for one in written], gap=False),
        ],
    )


def _answer(calibrations: Sequence[TableCalibration]) -> str:
    """Return in a sentence how many curves there are, and how well they hold."""
    errors = [
        error
        for own in calibrations
        for fit in own.fits
        for error in own.left_out_errors(fit)
        if error is not None
    ]
    curves = counted(sum(len(own.fits) for own in calibrations), "curve")
    worst = (
        f"; medians of sizes that were left out are off by {percent(max(errors))} at most" if errors else ""
    )
    return f"{curves} of {counted(len(calibrations), 'machine')}{worst}."


def _machine(calibration: TableCalibration) -> Iterator[Part]:
    """Yield the curves of one machine."""
    yield Text(title=f"{calibration.machine}: {', '.join(calibration.systems)}", gap=False)
    cells = [
        (
            fit.curve.collective,
            f"{fit.curve.num_nodes} × {fit.curve.ranks_per_node}",
            str(fit.num_rows),
            "  ".join(
                f"{line.latency_ps / 1e6:.3g} µs + n / {line.bandwidth / 1e9:.3g} GB/s"
                for line in fit.curve.lines
            ),
            *(("–" if error is None else percent(error)) for error in calibration.left_out_errors(fit)),
            f"{percent(fit.curve.spread)}, {percent(fit.curve.spread_large)}",
        )
        for fit in calibration.fits
    ]
    yield Grid(HEADS, cells, text_columns=4, gap=False)
