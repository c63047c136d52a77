"""Step over the bucket cap: its time above, exposed communication below, torch's default marked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ddp.reduction.bucketing import DEFAULT_CAP_MB
from testbed.output.figure import COLOURS, INK, QUIET
from testbed.plots.line_plot import CommonAxis, Level, Line, Panel, line_plot, look

if TYPE_CHECKING:
    from ddp.tuning.trials import Trial, Tuning

    Curves: TypeAlias = Mapping[tuple[str, str], Sequence[tuple[float, Trial]]]

TORCH_NOTE = " (torch's DDP)"
MAX_LINES = 6
MIN_CAP_MB = 1
"""The curve is drawn from here on, or from below the best cap."""

DEFAULT_STYLE = {"color": INK, "marker": "D", "markersize": 6, "linestyle": ""}
COMPUTATION_STYLE = {"color": QUIET, "linewidth": 1.0, "zorder": 0}


def plot_tuning(found: Tuning, path: Path, *, title: str, note: str) -> None:
    """Draw *found* to *path*, in the format that its suffix names.

    Raises:
        UsageError: matplotlib is not installed, or cannot write this format.
        OSError: *path* cannot be written.
    """
    curves = _curves(found)
    marked = _marked(found, curves)
    computation_ms = 1e3 * (found.default.seconds - found.default.exposed_seconds)
    computation = Level(computation_ms, "computation alone", COMPUTATION_STYLE)
    shown = [trial for curve in curves.values() for _, trial in curve]
    shown += [found.default, *(trial for trial, _, _ in marked)]
    exposed = [trial.exposed_ps for trial in shown if trial.exposed_ps]

    above = Panel(
        "step (ms)",
        _lines(found, curves, _step_ms),
        [*(Level(_step_ms(trial), label, style) for trial, label, style in marked), computation],
        bottom=_below(computation_ms, max(map(_step_ms, shown))),
    )
    below = Panel(
        "exposed communication (ms)",
        _lines(found, curves, _exposed_ms),
        [Level(_exposed_ms(trial), label, style) for trial, label, style in marked],
        log=bool(exposed) and max(exposed) > 10 * min(exposed),
    )
    axis = CommonAxis("cap of all buckets (MiB)", marked=DEFAULT_CAP_MB)
    line_plot([[above], [below]], axis, path, size=(9.5, 6.4), title=title, note=note)


def _below(least: float, most: float) -> float:
    """Return where the axis begins: below computation alone, so that what differs fills the panel."""
    return max(0.0, least - 0.1 * (most - least)) if most > least else 0.0


def _step_ms(trial: Trial) -> float:
    return 1e3 * trial.seconds


def _exposed_ms(trial: Trial) -> float:
    return 1e3 * trial.exposed_seconds


def _curves(found: Tuning) -> Curves:
    """Return the trials over the cap of the best pairs of algorithm and strategy, and of torch's DDP."""
    own = found.torch.options.pair
    pairs = [trial.options.pair for trial in found.pairs()]
    shown = [pair for pair in pairs if len(found.curve(*pair)) > 2][:MAX_LINES]
    if own not in shown:
        shown = [*shown[: MAX_LINES - 1], own]
    best_cap = found.one_cap().options.bucket_cap_mb or DEFAULT_CAP_MB
    lowest = min(MIN_CAP_MB, best_cap / 4)
    return {pair: [point for point in found.plateaus(*pair) if point[0] >= lowest] for pair in shown}


def _marked(found: Tuning, curves: Curves) -> list[tuple[Trial, str, Mapping[str, object]]]:
    """Return what has no single cap, with its label and style: a list of caps, and the best of all."""
    marked: list[tuple[Trial, str, str]] = []
    own = found.torch.options
    if own.bucket_cap_mb_list:
        colour = COLOURS[list(curves).index(own.pair) % len(COLOURS)]
        marked.append((found.torch, "torch's DDP, a list of caps", colour))
    best = found.best.options
    if found.best is not found.torch and best.bucket_cap_mb is None:
        marked.append((found.best, f"best: {best.algorithm}, {best.strategy}", INK))
    return [
        (trial, label, {"color": colour, "linewidth": 1.2, "linestyle": (0, (1, 1.5))})
        for trial, label, colour in marked
    ]


def _lines(found: Tuning, curves: Curves, value: Callable[[Trial], float]) -> list[Line]:
    """Return a line for each curve, without values of 0, and the point of torch's default."""
    lines = []
    for number, (pair, curve) in enumerate(curves.items()):
        note = TORCH_NOTE if pair == found.torch.options.pair else ""
        points = [(cap, value(trial)) for cap, trial in curve if value(trial)]
        style = look(number, number, marker=".") | {"markersize": 3.0}
        lines.append(Line(points, f"{pair[0]}, {pair[1]}{note}", style))
    default = [(DEFAULT_CAP_MB, value(found.default))]
    return [*lines, Line(default, "torch's default: 25 MiB, first 1 MiB", DEFAULT_STYLE)]
