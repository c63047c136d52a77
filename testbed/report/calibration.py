"""Report of a live calibration: its constants with their intervals, and how well they hold by size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from testbed.output.table import counted, percent, seconds, spell_size, stdout_console, table
from testbed.truth.calibration.calibration import Calibration, Estimate, SoftwareCosts

INTERVAL = "95 % interval"


def print_calibration(calibration: Calibration) -> None:
    """Print *calibration* as tables."""
    console = stdout_console()
    origin = calibration.origin
    console.print(f"{calibration.name}: {origin.network}", style="bold", markup=False, soft_wrap=True)
    console.print(table(("links", "constant", "value", INTERVAL), _links(calibration), text_columns=2))
    console.print()
    software = [
        *_software("ours", calibration.programs),
        *_software("native", calibration.native),
    ]
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
    if costs.reduction_bandwidth is None:
        return [*rows, (name, "reduction", "free", "")]
    return [*rows, (name, "reduction", *_shown(costs.reduction_bandwidth, _rate))]


def _shown(estimate: Estimate, spell: Callable[[float], Any]) -> tuple[str, str]:
    interval = "" if estimate.low == estimate.high else f"{spell(estimate.low)} – {spell(estimate.high)}"
    return str(spell(estimate.value)), interval


def _rate(value: float) -> str:
    return f"{value / 1e9:.3g} GB/s"


def _part(value: float) -> str:
    return f"{value:.3f}"
