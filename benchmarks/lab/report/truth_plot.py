"""Predicted over measured times of a validation, log-log: on the diagonal a prediction is right."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.lab.shaped.rows import Row, figures
from testbed.output.figure import COLOURS, INK, QUIET, annotate, dress, new_figure, save
from testbed.output.table import percent

MARKERS = "os^Dv*P"
BAND = 0.1
"""Relative error of the lines beside the diagonal."""


def plot_truth(rows: Sequence[Row], path: Path) -> None:
    """Draw *rows* to *path*, in the format that its suffix names; what is measured over its spread.

    Raises:
        UsageError: matplotlib is not installed, or cannot write this format.
        OSError: *path* cannot be written.
    """
    figure = new_figure(7.5, 7.5)
    panel = figure.subplots()
    kinds = list(dict.fromkeys(row.kind for row in rows))
    for number, kind in enumerate(kinds):
        own = [row for row in rows if row.kind == kind]
        measured = [row.measured for row in own]
        panel.errorbar(
            measured,
            [row.predicted for row in own],
            xerr=[
                [m - min(row.seconds) for m, row in zip(measured, own, strict=True)],
                [max(row.seconds) - m for m, row in zip(measured, own, strict=True)],
            ],
            linestyle="",
            marker=MARKERS[number % len(MARKERS)],
            markersize=4.5,
            color=COLOURS[number % len(COLOURS)],
            elinewidth=0.8,
            label=kind.replace("_", "-"),
        )

    times = [t for row in rows for t in (row.measured, row.predicted)]
    ends = [min(times) / 1.5, max(times) * 1.5]
    panel.plot(ends, ends, color=INK, linewidth=0.9, zorder=0)
    for factor in (1 - BAND, 1 + BAND):
        panel.plot(ends, [factor * end for end in ends], color=QUIET, linewidth=0.7, linestyle=":", zorder=0)
    panel.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    panel.set_xlabel("measured, seconds", color=INK)
    panel.set_ylabel("predicted, seconds", color=INK)
    panel.legend(frameon=False, labelcolor=INK, fontsize=9)
    dress(panel)

    median = figures(rows)["median_error"]
    large = "" if median is None else f" Median error from 512 KiB: {percent(median)}."
    annotate(
        figure,
        f"Predicted over measured, {len(rows)} rows",
        f"Dotted: 10 % off. Bars: quickest to slowest repetition.{large}",
        100,
    )
    save(figure, path)
