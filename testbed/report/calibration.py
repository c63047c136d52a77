"""Report of a live calibration: measured, found, written, and printed with how well it holds by size."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collectives.formats.whole_file import write_whole
from testbed.output.figure import check_plot
from testbed.output.folder import check_writable, document
from testbed.output.table import (
    counted,
    percent,
    print_json,
    progress,
    seconds,
    spell_size,
    stdout_console,
    table,
)
from testbed.truth.calibration.live import LiveRequest, described_here, joined, measured_here, start_ranks
from testbed.truth.calibration.quantities import MOST_REDUCTION

if TYPE_CHECKING:
    from testbed.truth.calibration.calibration import Calibration
    from testbed.truth.calibration.fit import Fitted
    from testbed.truth.calibration.quantities import Estimate, SoftwareCosts

INTERVAL = "95 % interval"

MODEL = (
    "the constants with which the simulator, by the transport model named, answers what was measured; "
    "intervals hold 95 of 100 bootstraps, errors are those of the fit"
)


def calibrate_network(request: LiveRequest, output: Path | None, plot: Path | None, *, as_json: bool) -> None:
    """Measure the network between processes, find its constants, write and print them.

    Raises:
        UsageError: what was asked for cannot be measured, or a file cannot be written.
        LaunchError: a rank failed.
    """
    request.check()
    if output is not None:
        check_writable(output)
    if plot is not None:
        check_plot(plot)
    if not joined():
        start_ranks(request)
        return
    measured = measured_here(request)
    if measured is None:
        return

    from testbed.report.plots.calibration_plot import plot_calibration
    from testbed.truth.calibration.network_text import network_toml
    from testbed.truth.calibration.result import calibration_of

    name = output.stem if output is not None else "calibration"
    with progress() as advance:
        advance("finding the constants")
        calibration, fitted = calibration_of(measured, name=name, network=described_here(request.num_ranks))
    if output is not None:
        write_whole(output, network_toml(calibration))
    if plot is not None:
        plot_calibration(fitted, plot, title=f"Calibration of {calibration.origin.network}", note=MODEL)
    if as_json:
        _print_document(calibration, fitted, output)
        return
    print_calibration(calibration)
    for what, path in (("Written", output), ("Plot", plot)):
        if path is not None:
            print(f"{what}: {path}")


def _print_document(calibration: Calibration, fitted: Fitted, output: Path | None) -> None:
    from testbed.truth.calibration.fit import SEED

    print_json(
        document(
            method=["measured", "simulated"],
            model=MODEL,
            seed=SEED,
            calibration=calibration.as_json(),
            rows=fitted.as_json(),
            written=[] if output is None else [str(output)],
        )
    )


def print_calibration(calibration: Calibration) -> None:
    """Print *calibration* as tables."""
    console = stdout_console()
    origin = calibration.origin
    console.print(f"{calibration.name}: {origin.network}", style="bold", markup=False, soft_wrap=True)
    console.print(table(("links", "constant", "value", INTERVAL), _links(calibration), text_columns=2))
    console.print()
    software = _software("ours", calibration.programs)
    if calibration.native is not None:
        software += _software("native", calibration.native)
    console.print(table(("software", "constant", "value", INTERVAL), software, text_columns=2))
    console.print()
    fits = [
        (
            spell_size(fit.nbytes),
            str(fit.num_rows),
            percent(fit.median_error),
            percent(fit.worst_error),
            percent(fit.spread),
        )
        for fit in calibration.fits
    ]
    heads = ("about", "rows", "median error", "worst error", "spread of repetitions")
    console.print(table(heads, fits, text_columns=1))
    console.print()
    console.print(
        f"Measured: {counted(origin.num_rows, 'pattern')} of {spell_size(origin.smallest)} to "
        f"{spell_size(origin.largest)} among {counted(origin.num_ranks, 'rank')} over {origin.transport}, in "
        f"{origin.seconds:.0f} s; errors are those of the fit.  Other sizes and more flows on a link than "
        f"{_most_flows(calibration)} are not measured: predictions of them carry the last constants on.",
        style="dim",
        markup=False,
    )


def _most_flows(calibration: Calibration) -> int:
    return max(len(own.both_ways) for own in calibration.classes.values())


def _links(calibration: Calibration) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for kind, shares in calibration.classes.items():
        name = kind.replace("_", " ")
        rows.append((name, "rate", *_shown(shares.rate, _rate)))
        if kind == "memory":
            if (cached := calibration.cached) is not None:
                upto = f"up to {spell_size(cached.nbytes)} of all ranks"
                rows.append((name, f"{upto}, times as fast", f"{cached.speedup:.3g}", ""))
                rows.append((name, "copies of these, times as fast", f"{cached.copy_speedup:.3g}", ""))
            continue
        rows.append((name, "latency of a path", *_shown(shares.latency, seconds)))
        for way, parts in (("one way", shares.one_way), ("both ways", shares.both_ways)):
            for k, part in enumerate(parts, 1):
                rows.append((name, f"share of {counted(k, 'flow')}, {way}", *_shown(part, _part)))
    return rows


def _software(name: str, costs: SoftwareCosts) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [
        (name, "overhead of a message, either side", *_shown(costs.overhead, seconds)),
        (name, "until an arrival is known", *_shown(costs.arrival_overhead, seconds)),
    ]
    if costs.call_overhead is not None:
        rows.append((name, "overhead of a call", *_shown(costs.call_overhead, seconds)))
        rows.append((name, "copies around a program", *_shown_rate(costs.copy_bandwidth)))
    return [*rows, (name, "reduction", *_shown_rate(costs.reduction_bandwidth))]


def _shown_rate(estimate: Estimate | None) -> tuple[str, str]:
    return ("free", "") if estimate is None else _shown(estimate, _rate)


def _shown(estimate: Estimate, spell: Callable[[float], Any]) -> tuple[str, str]:
    interval = "" if estimate.low == estimate.high else f"{spell(estimate.low)} – {spell(estimate.high)}"
    return str(spell(estimate.value)), interval


def _rate(value: float) -> str:
    return "free" if value >= MOST_REDUCTION else f"{value / 1e9:.3g} GB/s"


def _part(value: float) -> str:
    return f"{value:.3f}"
