"""Tables of a search for bucket caps: candidates side by side, the curve over the cap, and what to paste."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from testbed.output.table import percent, seconds, table

if TYPE_CHECKING:
    from rich.table import Table

    from ddp.tuning.trials import StepOptions, Trial, Tuning
    from testbed.studies.carriers import Carrier

DEFAULT_CAP_MB = 25
OPTIMIZER_NOTE = "  # with ddp.OverlappedOptimizer"
MAX_CURVE_ROWS = 14
MAX_PAIR_ROWS = 12
LEGEND = (
    "step: time of an iteration; exposed: of it, communication that the compute waits for; gain: of the step."
)


def model_of(torch_algorithm: str, assumed: str) -> str:
    """Return, in a sentence, what the figures assume; *assumed* is what is counted besides the network."""
    return (
        "weak scaling; buckets launched by the reducer that trains, replayed with the profile's times; "
        f"{assumed}; memory not asked; torch's own DDP is taken to all-reduce by {torch_algorithm}"
    )


def tuning_tables(found: Tuning) -> Iterator[Table]:
    """Yield the choices side by side, algorithms and strategies if there are several, and the curve."""
    columns = ("", "algorithm", "strategy", "buckets", "step", "exposed", "gain")
    yield table(columns, [_row(found, name, trial) for name, trial in _choices(found)], text_columns=3)
    pairs = found.pairs()
    if len(pairs) > 1:
        rows = [_row(found, "", trial)[1:] for trial in pairs[:MAX_PAIR_ROWS]]
        title = "Best of each algorithm and strategy" + (
            f" (the first {MAX_PAIR_ROWS} of {len(pairs)})" if len(pairs) > MAX_PAIR_ROWS else ""
        )
        yield table(columns[1:], rows, text_columns=2, title=title)
    own = found.torch.options
    title = f"One cap for all buckets: {own.algorithm}, {own.strategy}"
    yield table(("cap (MiB)", "buckets", "step", "exposed"), _curve_rows(found), text_columns=0, title=title)


def arguments(options: StepOptions) -> str:
    """Return the keyword arguments for torch's DDP or, with algorithm and strategy, ours."""
    if options.bucket_cap_mb_list:
        return f"bucket_cap_mb_list=[{', '.join(f'{cap:.10g}' for cap in options.bucket_cap_mb_list)}]"
    return "" if options.bucket_cap_mb is None else f"bucket_cap_mb={options.bucket_cap_mb:.10g}"


def paste(found: Tuning, carriers: Sequence[Carrier] = ()) -> list[str]:
    """Return the lines to paste: torch's DDP with one cap, with a list, and ours.

    On real processes nobody has described the network, so what NCCL chooses is called ``native`` there, and
    of what is cheapest here the program that carries the largest buckets is named.
    """
    from ddp.reduction.overlap import resolve_strategy
    from ddp.reduction.strategies.strategy import Barrier

    torch_ddp = "torch.nn.parallel.DistributedDataParallel(module{})"
    lines = [torch_ddp.format(_after_comma(arguments(found.one_cap().options)))]
    if found.torch.options.bucket_cap_mb_list:
        lines.append(torch_ddp.format(_after_comma(arguments(found.torch.options))) + "  # torch 2.13")
    own = found.best.options
    algorithm = own.algorithm
    if algorithm == "nccl":
        algorithm = "native"
    elif algorithm == "auto" and carriers:
        algorithm = max(carriers, key=lambda carrier: carrier.largest_bytes).algorithm
    chosen = f'algorithm="{algorithm}", strategy="{own.strategy}"'
    note = "" if resolve_strategy(own.strategy).barrier is Barrier.BACKWARD_END else OPTIMIZER_NOTE
    lines.append(f"ddp.DistributedDataParallel(module, {chosen}{_after_comma(arguments(own))}){note}")
    return list(dict.fromkeys(lines))


def search_lines(found: Tuning) -> list[str]:
    """Return how was searched, a line for the algorithms and strategies that were searched alike."""
    alike: dict[str, dict[str, list[str]]] = {}
    for (algorithm, strategy), how in found.searches.items():
        alike.setdefault(how, {}).setdefault(strategy, []).append(algorithm)
    return [
        "Searched: "
        + "; ".join(f"{strategy} with {', '.join(algorithms)}" for strategy, algorithms in own.items())
        + f": {how}."
        for how, own in alike.items()
    ]


def row_of(found: Tuning, trial: Trial) -> dict[str, Any]:
    """Return *trial* as a JSON row."""
    own = trial.options
    return {
        "algorithm": own.algorithm,
        "strategy": own.strategy,
        "bucket_cap_mb": own.bucket_cap_mb,
        "bucket_cap_mb_list": list(own.bucket_cap_mb_list) or None,
        "seconds": trial.seconds,
        "exposed_seconds": trial.exposed_seconds,
        "gain": found.gain(trial),
        "bucket_nbytes": list(trial.nbytes),
        "engine": trial.engine,
    }


def _after_comma(text: str) -> str:
    return f", {text}" if text else ""


def _choices(found: Tuning) -> Iterator[tuple[str, Trial]]:
    yield "torch's default", found.default
    if found.one_cap() is not found.default:
        yield "torch's DDP, one cap", found.one_cap()
    if found.torch.options.bucket_cap_mb_list:
        yield "torch's DDP, a list of caps", found.torch
    if found.best is not found.torch:
        yield "best of all", found.best


def _row(found: Tuning, name: str, trial: Trial) -> tuple[str, ...]:
    own = trial.options
    figures = str(len(trial.nbytes)), seconds(trial.seconds), seconds(trial.exposed_seconds)
    gain = found.gain(trial)
    return name, own.algorithm, own.strategy, *figures, percent(gain if abs(gain) >= 5e-4 else 0.0)


def _curve_rows(found: Tuning) -> list[tuple[str, ...]]:
    own = found.torch.options
    curve = found.curve(own.algorithm, own.strategy)
    shown: list[tuple[float, Trial]] = []
    best = found.one_cap()
    for cap, trial in curve:
        factor = (curve[-1][0] / curve[0][0]) ** (1 / MAX_CURVE_ROWS)
        if not shown or trial is best or cap >= factor * shown[-1][0]:
            shown.append((cap, trial))
    rows = [(cap, f"{cap:.6g}{' best' if trial is best else ''}", trial) for cap, trial in shown]
    rows.append((DEFAULT_CAP_MB, "default 25, first 1", found.default))
    return [
        (name, str(len(trial.nbytes)), seconds(trial.seconds), seconds(trial.exposed_seconds))
        for _, name, trial in sorted(rows, key=lambda row: row[0])
    ]
