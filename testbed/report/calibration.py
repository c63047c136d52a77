"""Result of a live calibration: constants of links and of software, and how well they hold by size."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.calibration.live.quantities import MOST_REDUCTION
from testbed.output.table import counted, percent, seconds, spell_size
from testbed.report.calibration_fit import fit_figure
from testbed.result import Grid, Part, Plot, Result, Rows, Text, asked, found, quiet

if TYPE_CHECKING:
    from testbed.calibration.live.calibration import Calibration
    from testbed.calibration.live.fit import Fitted
    from testbed.calibration.live.quantities import Estimate, SoftwareCosts

INTERVAL = "95 % interval"

MODEL = (
    "the constants with which the simulator, by the transport model named, answers what was measured; "
    "intervals hold 95 of 100 bootstraps, errors are those of the fit"
)


COLUMNS = (
    *asked("collective", "algorithm", "nbytes", "groups"),
    *found("measured_seconds", "spread", "predicted_seconds", "error"),
)


def calibration_result(calibration: Calibration, fitted: Fitted, written: Path | None) -> Result:
    """Return the constants of a network that was measured.

    Args:
        calibration: what was found.
        fitted: the fit behind it.
        written: the network file.
    """
    from testbed.calibration.live.fit import SEED

    return Result(
        question=f"What do links of {calibration.origin.network} carry, and what does software take?",
        answer=_answer(calibration, fitted),
        method=["measured", "simulated"],
        model=MODEL,
        seed=SEED,
        rows=Rows(COLUMNS, fitted.as_json()),
        body={
            "calibration": calibration.as_json(),
            "written": [] if written is None else [str(written)],
        },
        parts=[
            Plot(
                partial(fit_figure, fitted),
                "Fit and residuals",
                "Marks are measured, lines predicted.",
                alone=f"Calibration of {calibration.origin.network}",
            ),
            *_parts(calibration),
        ],
        files={} if written is None else {"Written": written},
    )


def _answer(calibration: Calibration, fitted: Fitted) -> str:
    """Return in a sentence what links carry, and how well the constants hold."""
    rates = ", ".join(
        f"{kind.replace('_', ' ')} {_rate(shares.rate.value)}" for kind, shares in calibration.classes.items()
    )
    return f"Links carry: {rates}; the fit is off by {percent(fitted.residual)} on average."


def _parts(calibration: Calibration) -> list[Part]:
    origin = calibration.origin
    software = _software("ours", calibration.programs)
    if calibration.native is not None:
        software += _software("native", calibration.native)
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
    return [
        Text(title=f"{calibration.name}: {origin.network}"),
        Grid(("links", "constant", "value", INTERVAL), _links(calibration), text_columns=2, gap=False),
        Grid(("software", "constant", "value", INTERVAL), software, text_columns=2),
        Grid(("about", "rows", "median error", "worst error", "spread of repetitions"), fits),
        quiet(
            f"Measured: {counted(origin.num_rows, 'pattern')} of {spell_size(origin.smallest)} to "
            f"{spell_size(origin.largest)} among {counted(origin.num_ranks, 'rank')} over "
            f"{origin.transport}, in {origin.seconds:.0f} s; errors are those of the fit.  Other sizes and "
            f"more flows on a link than {_most_flows(calibration)} are not measured: predictions of them "
            "carry the last constants on."
        ),
    ]


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
