"""Result of a search for bucket caps: candidates side by side, the curve over the cap, what to paste."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from collectives.catalogue.admission import Evidence
from collectives.timing import Assumptions
from ddp import Profile
from ddp.reduction.bucketing import DEFAULT_CAP_MB
from ddp.reduction.overlap import resolve_strategy
from ddp.reduction.strategies.strategy import Barrier
from ddp.tuning.trials import StepOptions, Trial, Tuning
from sim import Topology
from testbed.calibration.confidence import Interval, as_fields, interval_of_step
from testbed.options import evidence
from testbed.output.figure import COLOURS, DASHES, INK
from testbed.output.table import percent, seconds
from testbed.plots.figure import Axis, Level, Line, Lines, NoFigure, Panel
from testbed.report.scaling import OF_PROFILES, profile_line
from testbed.result import Grid, Part, Plot, Result, Rows, Text, asked, found, found_by, quiet, warning
from testbed.studies.carriers import Carrier, carrier_rows, carrier_table, faster_lines

if TYPE_CHECKING:
    Curves: TypeAlias = Mapping[tuple[str, str], Sequence[tuple[float, Trial]]]


OPTIMIZER_NOTE = "  # with ddp.OverlappedOptimizer"
MAX_CURVE_ROWS = 14
MAX_PAIR_ROWS = 12
PAIR = asked("strategy", "algorithm")
COLUMNS = (
    *PAIR,
    *asked("bucket_cap_mb", "bucket_cap_mb_list"),
    *found("seconds", "low", "high", "exposed_seconds", "gain", "bucket_nbytes"),
    *found_by("engine", "interval_from"),
)
LEGEND = (
    "step: time of an iteration; exposed: of it, communication that the compute waits for; gain: of the step."
)

TORCH_NOTE = " (torch's DDP)"
MAX_LINES = 6
MIN_POINTS = 3
MIN_CAP_MB = 1
"""The curve is drawn from here on, or from below the best cap."""


def tuning_result(
    tuning: Tuning,
    profile: Profile,
    topology: Topology,
    carriers: Sequence[Carrier],
    proved: Sequence[Evidence],
    counted: Assumptions,
    assumptions: Mapping[str, Any],
    model: str,
) -> Result:
    """Return what was found for *profile* on *topology*: choices, the curve over the cap, what to paste."""
    of_pairs = [(strategy, algorithm, how) for (algorithm, strategy), how in tuning.searches.items()]
    refused = [(strategy, algorithm, why) for algorithm, strategy, why in tuning.refused]

    def row(trial: Trial) -> dict[str, Any]:
        sure = interval_of_step(trial.seconds, profile.compute_seconds, counted, topology)
        return row_of(tuning, sure, trial)

    return Result(
        question=f"Which buckets suit {profile.name} on {topology.num_ranks} ranks of {topology.name}?",
        answer=answer(tuning),
        method="simulated",
        model=model,
        topologies={f"{topology.name} x {topology.num_ranks}": topology.digest()},
        assumptions=assumptions,
        rows=Rows(COLUMNS, [row(trial) for trial in tuning.trials]),
        tables={
            "profiles": Rows.of(OF_PROFILES, [profile]),
            "carriers": carrier_rows(carriers),
            "searches": Rows.of((*PAIR, *found("search")), of_pairs),
            "refused": Rows.of((*PAIR, *found("reason")), refused),
        },
        asked=("transport_model",),
        body={
            "transport_model": counted.software.transport.name,
            "complete": tuning.complete,
            "default": row(tuning.default),
            "torch_one_cap": row(tuning.one_cap()),
            "torch": row(tuning.torch),
            "best": row(tuning.best),
            "paste": paste(tuning, carriers),
            **evidence.as_json(proved),
        },
        parts=[
            Plot(
                partial(over_caps, tuning),
                "One cap for all buckets",
                "The axis of the step does not begin at 0.",
                alone=f"Bucket caps of {profile.name} on {topology.name}, {topology.num_ranks} ranks",
            ),
            Text(title=f"{profile.name} on {topology.name}, {topology.num_ranks} ranks"),
            *([] if tuning.complete else [warning("Interrupted: the best so far.")]),
            *tuning_tables(tuning),
            *([] if (carried := carrier_table(carriers)) is None else [carried]),
            Text(paste(tuning, carriers)),
            quiet(*search_lines(tuning)),
            *_remarks(tuning, carriers),
            quiet(
                LEGEND,
                f"Simulated: {model}.",
                *(f"{one}." for one in proved),
                profile_line(profile),
                gap=False,
            ),
        ],
    )


def _remarks(tuning: Tuning, carriers: Sequence[Carrier]) -> Iterator[Part]:
    """Yield what would be faster, and what was left out: the first of those with the same reason."""
    yield warning(*(f"{line}." for line in faster_lines(carriers)), gap=False)
    reasons = {reason: (name, when) for name, when, reason in reversed(tuning.refused)}
    left_out = reversed(reasons.items())
    yield quiet(*(f"Left out: {name}, {when}: {why}" for why, (name, when) in left_out), gap=False)


def answer(tuning: Tuning) -> str:
    """Return in a sentence what is best, and what it gains."""
    best, default = tuning.best, tuning.default
    how = f"{best.options.algorithm} with {best.options.strategy} in {len(best.nbytes)} buckets"
    gain = tuning.gain(best)
    so_far = "" if tuning.complete else "Interrupted; of what was tried: "
    if gain <= 0:
        return f"{so_far}Nothing is faster than torch's default, a step of {seconds(default.seconds)}."
    return (
        f"{so_far}A step of {seconds(best.seconds)} by {how}, {percent(gain)} less than torch's default, "
        f"which takes {seconds(default.seconds)}."
    )


def model_of(torch_algorithm: str, assumed: str) -> str:
    """Return, in a sentence, what the figures assume; *assumed* is what is counted besides the network."""
    return (
        "weak scaling; buckets launched by the reducer that trains, replayed with the profile's times; "
        f"{assumed}; memory not asked; torch's own DDP is taken to all-reduce by {torch_algorithm}"
    )


def tuning_tables(tuning: Tuning) -> Iterator[Grid]:
    """Yield the choices side by side, algorithms and strategies if there are several, and the curve."""
    columns = ("", "algorithm", "strategy", "buckets", "step", "exposed", "gain")
    yield Grid(columns, [_row(tuning, name, trial) for name, trial in _choices(tuning)], text_columns=3)
    pairs = tuning.pairs()
    if len(pairs) > 1:
        rows = [_row(tuning, "", trial)[1:] for trial in pairs[:MAX_PAIR_ROWS]]
        title = "Best of each algorithm and strategy" + (
            f" (the first {MAX_PAIR_ROWS} of {len(pairs)})" if len(pairs) > MAX_PAIR_ROWS else ""
        )
        yield Grid(columns[1:], rows, text_columns=2, title=title)
    own = tuning.torch.options
    title = f"One cap for all buckets: {own.algorithm}, {own.strategy}"
    yield Grid(("cap (MiB)", "buckets", "step", "exposed"), _curve_rows(tuning), text_columns=0, title=title)


def arguments(options: StepOptions) -> str:
    """Return the keyword arguments for torch's DDP or, with algorithm and strategy, ours."""
    if options.bucket_cap_mb_list:
        return f"bucket_cap_mb_list=[{', '.join(f'{cap:.10g}' for cap in options.bucket_cap_mb_list)}]"
    return "" if options.bucket_cap_mb is None else f"bucket_cap_mb={options.bucket_cap_mb:.10g}"


def paste(tuning: Tuning, carriers: Sequence[Carrier] = ()) -> list[str]:
    """Return the lines to paste: torch's DDP with one cap, with a list, and ours.

    On real processes nobody has described the network, so what NCCL chooses is called ``native`` there, and
    of what is cheapest here the program that carries the largest buckets is named.
    """
    torch_ddp = "torch.nn.parallel.DistributedDataParallel(module{})"
    lines = [torch_ddp.format(_after_comma(arguments(tuning.one_cap().options)))]
    if tuning.torch.options.bucket_cap_mb_list:
        lines.append(torch_ddp.format(_after_comma(arguments(tuning.torch.options))) + "  # torch 2.13")
    own = tuning.best.options
    algorithm = own.algorithm
    if algorithm == "nccl":
        algorithm = "native"
    elif algorithm == "auto" and carriers:
        algorithm = max(carriers, key=lambda carrier: carrier.largest_bytes).algorithm
    chosen = f'algorithm="{algorithm}", strategy="{own.strategy}"'
    note = "" if resolve_strategy(own.strategy).barrier is Barrier.BACKWARD_END else OPTIMIZER_NOTE
    lines.append(f"ddp.DistributedDataParallel(module, {chosen}{_after_comma(arguments(own))}){note}")
    return list(dict.fromkeys(lines))


def search_lines(tuning: Tuning) -> list[str]:
    """Return how was searched, a line for the algorithms and strategies that were searched alike."""
    alike: dict[str, dict[str, list[str]]] = {}
    for (algorithm, strategy), how in tuning.searches.items():
        alike.setdefault(how, {}).setdefault(strategy, []).append(algorithm)
    return [
        "Searched: "
        + "; ".join(f"{strategy} with {', '.join(algorithms)}" for strategy, algorithms in own.items())
        + f": {how}."
        for how, own in alike.items()
    ]


def row_of(tuning: Tuning, interval: Interval | None, trial: Trial) -> dict[str, Any]:
    """Return *trial* as a JSON row; *interval*: where nine of ten measurements of it are expected."""
    own = trial.options
    return {
        "algorithm": own.algorithm,
        "strategy": own.strategy,
        "bucket_cap_mb": own.bucket_cap_mb,
        "bucket_cap_mb_list": list(own.bucket_cap_mb_list) or None,
        "seconds": trial.seconds,
        **as_fields(interval),
        "exposed_seconds": trial.exposed_seconds,
        "gain": tuning.gain(trial),
        "bucket_nbytes": list(trial.nbytes),
        "engine": trial.engine,
    }


def _after_comma(text: str) -> str:
    return f", {text}" if text else ""


def _choices(tuning: Tuning) -> Iterator[tuple[str, Trial]]:
    yield "torch's default", tuning.default
    if tuning.one_cap() is not tuning.default:
        yield "torch's DDP, one cap", tuning.one_cap()
    if tuning.torch.options.bucket_cap_mb_list:
        yield "torch's DDP, a list of caps", tuning.torch
    if tuning.best is not tuning.torch:
        yield "best of all", tuning.best


def _row(tuning: Tuning, name: str, trial: Trial) -> tuple[str, ...]:
    own = trial.options
    figures = str(len(trial.nbytes)), seconds(trial.seconds), seconds(trial.exposed_seconds)
    gain = tuning.gain(trial)
    return name, own.algorithm, own.strategy, *figures, percent(gain if abs(gain) >= 5e-4 else 0.0)


def _curve_rows(tuning: Tuning) -> list[tuple[str, ...]]:
    own = tuning.torch.options
    curve = tuning.curve(own.algorithm, own.strategy)
    shown: list[tuple[float, Trial]] = []
    best = tuning.one_cap()
    for cap, trial in curve:
        factor = (curve[-1][0] / curve[0][0]) ** (1 / MAX_CURVE_ROWS)
        if not shown or trial is best or cap >= factor * shown[-1][0]:
            shown.append((cap, trial))
    rows = [(cap, f"{cap:.6g}{' best' if trial is best else ''}", trial) for cap, trial in shown]
    rows.append((DEFAULT_CAP_MB, "default 25, first 1", tuning.default))
    return [
        (name, str(len(trial.nbytes)), seconds(trial.seconds), seconds(trial.exposed_seconds))
        for _, name, trial in sorted(rows, key=lambda row: row[0])
    ]


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
    is_wide = bool(exposed) and max(exposed) > 10 * min(exposed)
    for quantity, figure, levels, is_log in (
        ("step (ms)", "seconds", [Level(computation_ms, "computation alone")], False),
        ("exposed communication (ms)", "exposed_seconds", [], is_wide),
    ):
        own = [Level(_ms(trial, figure), label, colour, dash=2, width=1.2) for trial, label, colour in marked]
        axis = Axis(quantity, log=is_log, low=None if levels or is_log else 0.0)
        panels.append([Panel(axis, _lines(found, curves, figure), [*own, *levels])])
    axis = Axis("cap of all buckets (MiB)", log=True, spell="{:.3g}".format)
    return Lines(axis, panels, marked=DEFAULT_CAP_MB)


def _ms(trial: Trial, figure: str) -> float:
    return 1e3 * float(getattr(trial, figure))


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


def _lines(found: Tuning, curves: Curves, figure: str) -> list[Line]:
    """Return a line for each curve, without values of 0, and the point of torch's default."""
    lines = []
    for number, (pair, curve) in enumerate(curves.items()):
        note = TORCH_NOTE if pair == found.torch.options.pair else ""
        points = [(cap, _ms(trial, figure)) for cap, trial in curve if getattr(trial, figure)]
        colour, dash = COLOURS[number % len(COLOURS)], number % len(DASHES)
        lines.append(Line(f"{pair[0]}, {pair[1]}{note}", points, colour, dash, size=2.5))
    default = [(DEFAULT_CAP_MB, _ms(found.default, figure))]
    name = "torch's default: 25 MiB, first 1 MiB"
    return [*lines, Line(name, default, INK, dash=None, mark=3, size=6.0)]
