"""The step over the bucket cap: its time above, exposed communication below, torch's default marked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.output.figure import COLOURS, DASHES, INK, QUIET, annotate, check_plot, dress, new_figure, save
from testbed.report.tuning import DEFAULT_CAP_MB

if TYPE_CHECKING:
    from ddp.tuning.trials import Trial, Tuning

TORCH_NOTE = " (torch's DDP)"
MAX_LINES = 6
MIN_CAP_MB = 1
"""The curve is drawn from here on, or from below the best cap."""


def plot_tuning(found: Tuning, path: Path, *, title: str, note: str) -> None:
    """Draw *found* to *path*, in the format that its suffix names.

    Raises:
        UsageError: matplotlib is not installed, or cannot write this format.
        OSError: *path* cannot be written.
    """
    check_plot(path)
    from matplotlib.ticker import FuncFormatter

    figure = new_figure(9.5, 6.4, hspace=0.04)
    above, below = figure.subplots(2, 1, sharex=True)
    own = found.torch.setting
    pairs = [trial.setting.pair for trial in found.pairs()]
    shown = [pair for pair in pairs if len(found.curve(*pair)) > 2][:MAX_LINES]
    if own.pair not in shown:
        shown = [*shown[: MAX_LINES - 1], own.pair]
    best_cap = found.one_cap().setting.bucket_cap_mb or DEFAULT_CAP_MB
    shown_ps: list[int] = []
    for number, pair in enumerate(shown):
        curve = [point for point in found.plateaus(*pair) if point[0] >= min(MIN_CAP_MB, best_cap / 4)]
        caps = [cap for cap, _ in curve]
        style: dict[str, Any] = {
            "color": COLOURS[number % len(COLOURS)],
            "linestyle": DASHES[number % len(DASHES)],
            "linewidth": 1.6,
            "marker": ".",
            "markersize": 3.0,
        }
        label = f"{pair[0]}, {pair[1]}{TORCH_NOTE if pair == own.pair else ''}"
        above.plot(caps, [1e3 * t.seconds for _, t in curve], label=label, **style)
        shown_ps += [trial.exposed_ps for _, trial in curve if trial.exposed_ps]
        exposed = [(cap, 1e3 * trial.exposed_seconds) for cap, trial in curve if trial.exposed_ps]
        below.plot([cap for cap, _ in exposed], [time for _, time in exposed], **style)
    marks: list[tuple[str, Trial, str | None, str]] = [
        ("torch's default: 25 MiB, first 1", found.default, "D", INK)
    ]
    if found.torch.setting.bucket_cap_mb_list:
        marks.append(("torch's DDP, a list of caps", found.torch, None, COLOURS[shown.index(own.pair)]))
    if found.best is not found.torch and found.best.setting.bucket_cap_mb is None:
        marks.append(
            (f"best: {found.best.setting.algorithm}, {found.best.setting.strategy}", found.best, None, INK)
        )
    shown_ps += [trial.exposed_ps for _, trial, _, _ in marks if trial.exposed_ps]
    for label, trial, marker, colour in marks:
        for panel, value in ((above, 1e3 * trial.seconds), (below, 1e3 * trial.exposed_seconds)):
            if marker:
                panel.axvline(DEFAULT_CAP_MB, color=QUIET, linewidth=0.8, linestyle=(0, (2, 2)), zorder=0)
                panel.plot(
                    [DEFAULT_CAP_MB], [value], marker, color=colour, markersize=6, label=label, linestyle=""
                )
            else:
                panel.axhline(value, color=colour, linewidth=1.2, linestyle=(0, (1, 1.5)), label=label)
    compute_ms = 1e3 * (found.default.seconds - found.default.exposed_seconds)
    above.axhline(compute_ms, color=QUIET, linewidth=1.0, zorder=0, label="computation alone")
    above.set_xscale("log")
    if shown_ps and max(shown_ps) > 10 * min(shown_ps):
        below.set_yscale("log")
    else:
        below.set_ylim(bottom=0)
    for axis in (above.xaxis, below.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    for panel in (above, below):
        dress(panel)
    above.set_ylim(bottom=0)
    above.set_ylabel("step (ms)", color=INK)
    below.set_ylabel("exposed communication (ms)", color=INK)
    below.set_xlabel("cap of all buckets (MiB)", color=INK)
    beside: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.02), "handlelength": 3.0}
    above.legend(**beside, frameon=False, labelcolor=INK, fontsize=8.5)
    annotate(figure, title, note, 150)
    save(figure, path)
