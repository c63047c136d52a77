"""Results of calibrations: of a network that was measured, of tables of collectives, and of a device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sim.units import SECOND
from testbed.calibration.live.calibration import MOST_REDUCTION, Calibration, Estimate, Fit, SoftwareCosts
from testbed.calibration.live.fit import SEED, Fitted
from testbed.calibration.live.plan import Row
from testbed.calibration.tables.calibration import TableCalibration
from testbed.output.table import counted, percent, seconds, spell_size
from testbed.plots.figure import Axis, Level, Line, Lines, Panel, curves, numbered, size_axis
from testbed.result import Grid, Part, Plot, Result, Rows, Text, asked, found, quiet

if TYPE_CHECKING:
    from testbed.calibration.device.calibration import DeviceCalibration

INTERVAL = "95 % interval"

MODEL = (
    "the constants with which the simulator, by the transport model named, answers what was measured; "
    "intervals hold 95 of 100 bootstraps, errors are those of the fit"
)

COLUMNS = (
    *asked("collective", "algorithm", "nbytes", of="row.pattern"),
    *asked("groups", of=lambda own: [list(members) for members in own.row.pattern.groups]),
    *found("measured_seconds", of=lambda own: own.measured),
    *found("spread", of="row"),
    *found("predicted_seconds", of=lambda own: own.predicted),
    *found("error"),
)
CURVES_MODEL = (
    "the least of three lines (latency + size / bandwidth) for each collective and number of nodes, times "
    "what was measured beside it; errors are of sizes that were left out of the fit"
)

CURVES = (
    *asked("machine", "collective", "num_nodes", "ranks_per_node"),
    *found("num_rows", "lines", "sizes", "factors", "spread", "spread_large", "left_out_median_error"),
    *found("systems", "source", "carried"),
)
CURVES_HEADS = (
    "collective", "nodes", "rows", "least of", "error\n< 64 KiB", "\n- 16 MiB", "\n- 1 GiB", "\nabove",
    "spread",
)  # fmt: skip
CURVES_LEGEND = (
    "Error: median of sizes that were left out. Spread: nine of ten lie within, below and from 16 MiB."
)
KERNELS_MODEL = (
    "a kernel takes a launch and then its arithmetic or bytes at a rate that depends on its kind, type and "
    "shape; each time is the fastest of several rounds"
)


KERNELS = (
    *asked("operation", head="kernel"),
    *asked("dtype", head="type"),
    *found("shapes", head="shapes", of=lambda own: len(own.rates)),
    *found("launch_seconds", head="launch", spell=seconds, of=lambda own: own.launch_ps / SECOND),
    *found("slowest_rate", of=lambda own: min(own.rates)),
    *found(
        "fastest_rate", head="fastest", spell=lambda own: f"{own / 1e9:,.3g}", of=lambda own: max(own.rates)
    ),
    *asked("work", head="of", spell={"arithmetic": "GFLOP/s", "bytes": "GB/s"}.__getitem__),
    *found("spread", head="spread", spell=percent),
)

LEAST_RANGE = 20.0
"""Per cent that the axis of residuals shows at least, either way."""


def calibration_result(calibration: Calibration, fitted: Fitted, written: Path | None) -> Result:
    """Return the constants of a network that was measured.

    Args:
        calibration: what was found.
        fitted: the fit behind it.
        written: the network file.
    """
    return Result(
        question=f"What do links of {calibration.origin.network} carry, and what does software take?",
        answer=_answer(calibration, fitted),
        method=["measured", "simulated"],
        model=MODEL,
        seed=SEED,
        rows=Rows.of(COLUMNS, fitted.compared),
        body={"calibration": calibration.as_json(), "written": [] if written is None else [str(written)]},
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
    origin, classes = calibration.origin, calibration.classes.values()
    software = _software("ours", calibration.programs)
    if calibration.native is not None:
        software += _software("native", calibration.native)
    fits: dict[str, Callable[[Fit], str]] = {
        "about": lambda fit: spell_size(fit.nbytes),
        "rows": lambda fit: str(fit.num_rows),
        "median error": lambda fit: percent(fit.median_error),
        "worst error": lambda fit: percent(fit.worst_error),
        "spread of repetitions": lambda fit: percent(fit.spread),
    }
    return [
        Text(title=f"{calibration.name}: {origin.network}"),
        Grid(("links", "constant", "value", INTERVAL), _links(calibration), text_columns=2, gap=False),
        Grid(("software", "constant", "value", INTERVAL), software, text_columns=2),
        Grid.of(calibration.fits, fits),
        quiet(
            f"Measured: {counted(origin.num_rows, 'pattern')} of {spell_size(origin.smallest)} to "
            f"{spell_size(origin.largest)} among {counted(origin.num_ranks, 'rank')} over "
            f"{origin.transport}, in {origin.seconds:.0f} s; errors are those of the fit.  Other sizes and "
            f"more flows on a link than {max(len(own.both_ways) for own in classes)} are not measured: "
            "predictions of them carry the last constants on."
        ),
    ]


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
                rows.append((name, f"share of {counted(k, 'flow')}, {way}", *_shown(part, "{:.3f}".format)))
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


def curves_result(path: Path, calibrations: Sequence[TableCalibration], written: Sequence[Path]) -> Result:
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
        answer=_of_curves(calibrations),
        method="measured",
        model=CURVES_MODEL,
        rows=Rows(CURVES, rows),
        asked=("table",),
        body={"table": str(path), "written": [str(one) for one in written], "machines": machines},
        parts=[
            *(part for own in calibrations for part in _machine(own)),
            quiet(CURVES_LEGEND, gap=False),
            Text([f"Written: {one}" for one in written], gap=False),
        ],
    )


def _of_curves(calibrations: Sequence[TableCalibration]) -> str:
    """Return in a sentence how many curves there are, and how well they hold."""
    every = [error for own in calibrations for fit in own.fits for error in own.left_out_errors(fit)]
    most = percent(max(filter(None, every), default=0.0))
    curves = counted(sum(len(own.fits) for own in calibrations), "curve")
    worst = f"; medians of sizes that were left out are off by {most} at most" if any(every) else ""
    return f"{curves} of {counted(len(calibrations), 'machine')}{worst}."


def _machine(calibration: TableCalibration) -> Iterator[Part]:
    """Yield the curves of one machine."""
    yield Text(title=f"{calibration.machine}: {', '.join(calibration.systems)}", gap=False)
    rows = []
    for fit in calibration.fits:
        curve, errors = fit.curve, calibration.left_out_errors(fit)
        lines = (f"{own.latency_ps / 1e6:.3g} µs + n / {own.bandwidth / 1e9:.3g} GB/s" for own in curve.lines)
        nodes, spread = f"{curve.num_nodes} × {curve.ranks_per_node}", (curve.spread, curve.spread_large)
        cells = [curve.collective, nodes, str(fit.num_rows), "  ".join(lines)]
        cells += ["–" if error is None else percent(error) for error in errors]
        rows.append([*cells, ", ".join(map(percent, spread))])
    yield Grid(CURVES_HEADS, rows, text_columns=4, gap=False)


def device_result(calibrated: DeviceCalibration, written: Path | None) -> Result:
    """Return what was found of a device, and where its file was *written*."""
    fitted = calibrated.fitted
    rows = Rows.of(KERNELS, fitted.kernels)
    peaks = ", ".join(f"{dtype} {peak / 1e9:,.4g} GFLOP/s" for dtype, peak in fitted.peaks.items())
    fastest = f"Fastest: {peaks}, memory {fitted.memory_bandwidth / 1e9:,.4g} GB/s"
    return Result(
        question=f"What do kernels take on {calibrated.machine}?",
        answer=f"{fastest}.",
        method="measured",
        model=KERNELS_MODEL,
        rows=rows,
        asked=("device",),
        body={"written": [] if written is None else [str(written)], **calibrated.as_json()},
        parts=[
            Text([fastest], calibrated.machine),
            rows.grid(text_columns=2, gap=False),
            Text([f"Not carried out here: {name}" for name in calibrated.refused], gap=False),
            quiet(
                "Spread: how far a shape's rounds lie above the fastest, which counts; the median over "
                "shapes.",
                gap=False,
            ),
        ],
        files={} if written is None else {"Written": written},
    )


def fit_figure(fitted: Fitted) -> Lines:
    """Return the figure of a fit."""
    columns = {
        heading: [number for number, row in enumerate(fitted.rows) if row.pattern.is_native == native]
        for heading, native in (("ours", False), ("native", True))
    }
    names = dict.fromkeys(map(_name, fitted.rows))
    looks = {name: numbered(number) for number, name in enumerate(names)}
    worst = 1.05 * max(LEAST_RANGE, 100 * max(abs(float(error)) for error in fitted.errors))

    def lines(
        chosen: Sequence[int], value: Callable[[int], float], *, named: bool, **look: Any
    ) -> list[Line]:
        points = curves(
            (_name(own), own.pattern.nbytes, value(k)) for k in chosen for own in [fitted.rows[k]]
        )
        return [
            Line(name if named else "", sorted(own), **{**looks[name], **look})
            for name, own in points.items()
        ]

    times = [
        Panel(
            Axis("time", log=True, spell=seconds),
            [
                *lines(chosen, lambda number: fitted.rows[number].median, named=True, dash=None),
                *lines(chosen, lambda number: float(fitted.predicted[number]), named=False, mark=None),
            ],
            heading=heading,
        )
        for heading, chosen in columns.items()
    ]
    errors = [
        Panel(
            Axis("predicted over measured, less one (%)", low=-worst, high=worst),
            lines(chosen, lambda number: 100 * float(fitted.errors[number]), named=True, dash=None),
            [Level(0.0, "", width=0.8)],
        )
        for chosen in columns.values()
    ]
    return Lines(size_axis(row.pattern.nbytes for row in fitted.rows), [times, errors])


def _name(row: Row) -> str:
    """Return the pattern in words, whoever carries it out and whatever its size."""
    pattern = row.pattern
    groups = f" × {len(pattern.groups)}" if len(pattern.groups) > 1 else ""
    return f"{pattern.collective.replace('_', '-')}, {len(pattern.groups[0])} ranks{groups}"
