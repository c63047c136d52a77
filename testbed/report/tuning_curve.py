"""Figure of a search for bucket caps: the step over the cap above, exposed communication below."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from ddp.reduction.bucketing import DEFAULT_CAP_MB
from ddp.tuning.trials import Trial, Tuning
from testbed.output.figure import COLOURS, INK
from testbed.plots.figure import NUM_DASHES, Axis, Level, Line, Lines, NoFigure, Panel

if TYPE_CHECKING:
    Curves: TypeAlias = Mapping[tuple[str, str], Sequence[tuple[float, Trial]]]

TORCH_NOTE = " (torch's DDP)"
MAX_LINES = 6
MIN_POINTS = 3
MIN_CAP_MB = 1
"""The curve is drawn from here on, or from below the best cap."""


def over_caps(found: Tuning) -> Lines:
    """Return the figure; torch's default is marked.

    Raises:
        NoFigure: too few caps were tried.
    """
    curves = _curves(found)
    if max(map(len, curves.values())) < MIN_POINTS:
        raise NoFigure("too few caps were tried for a curve")
    computation_ms = 1e3 * (found.default.seconds - found.default.exposed_seconds)
    marked = list(_marked(found, curves))
    shown = [trial for curve in curves.values() for _, trial in curve]
    shown += [found.default, *(trial for trial, _, _ in marked)]
    exposed = [trial.exposed_ps for trial in shown if trial.exposed_ps]

    panels = []
    for quantity, value, levels, is_log in (
        ("step (ms)", _step_ms, [Level(computation_ms, "computation alone")], False),
        ("exposed communication (ms)", _exposed_ms, [], bool(exposed) and max(exposed) > 10 * min(exposed)),
    ):
        own = [Level(value(trial), label, colour, dash=2, width=1.2) for trial, label, colour in marked]
        axis = Axis(quantity, log=is_log, low=None if levels or is_log else 0.0)
        panels.append([Panel(axis, _lines(found, curves, value), [*own, *levels])])
    axis = Axis("cap of all buckets (MiB)", log=True, spell="{:.3g}".format)
    return Lines(axis, panels, marked=DEFAULT_CAP_MB)


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


def _marked(found: Tuning, curves: Curves) -> Iterator[tuple[Trial, str, str]]:
    """Yield what has no single cap, with its label and colour: a list of caps, and the best of all."""
    own = found.torch.options
    if own.bucket_cap_mb_list:
        colour = COLOURS[list(curves).index(own.pair) % len(COLOURS)]
        yield found.torch, "torch's DDP, a list of caps", colour
    best = found.best.options
    if found.best is not found.torch and best.bucket_cap_mb is None:
        yield found.best, f"best: {best.algorithm}, {best.strategy}", INK


def _lines(found: Tuning, curves: Curves, value: Callable[[Trial], float]) -> list[Line]:
    """Return a line for each curve, without values of 0, and the point of torch's default."""
    lines = []
    for number, (pair, curve) in enumerate(curves.items()):
        note = TORCH_NOTE if pair == found.torch.options.pair else ""
        points = [(cap, value(trial)) for cap, trial in curve if value(trial)]
        colour, dash = COLOURS[number % len(COLOURS)], number % NUM_DASHES
        lines.append(Line(f"{pair[0]}, {pair[1]}{note}", points, colour, dash, size=2.5))
    default = [(DEFAULT_CAP_MB, value(found.default))]
    name = "torch's default: 25 MiB, first 1 MiB"
    return [*lines, Line(name, default, INK, dash=None, mark=3, size=6.0)]
