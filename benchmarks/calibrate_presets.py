"""The measured tables of the presets, written from the published collectives that calibrate them.

    python -m benchmarks.calibrate_presets

Only the rows that ``benchmarks/lab/published/data/split.toml`` gives to calibrate are fitted.  A preset
stands for other machines of its kind, too, so the spread of each of its curves is at least that between
systems. Where several were measured for one curve, each is predicted from the others, and so are the sizes
of a set that another one keeps from calibrating (below 16 MiB of those alone that were taken in the same
way); within what nine of ten of its rows lie is one figure for that system, and what nine of ten systems lie
within follows from these.  Of less than nine of them, that is half again beyond the worst (as a logarithm).
A preset may take over what was measured on another one (`benchmarks.lab.published.carried`); its curves are
half as sure. `python -m benchmarks.lab.truth` judges the result by the rows that are left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from benchmarks.lab.published.carried import Carrier, below_own, call_of
from benchmarks.lab.published.shipped import shipped_systems
from benchmarks.lab.published.split import (
    ELSEWHERE,
    calibrating_presets,
    carried_presets,
    judged_presets,
    published_split,
)
from collectives.timing.formulas.measured import LARGE, measured_at
from sim.measured import MeasuredCurve
from testbed.calibration.tables.calibration import with_measured
from testbed.calibration.tables.fit import FittedCurve, Held, fit_curve, fit_curves, spread_of
from testbed.calibration.tables.rows import MeasuredRow

MIN_ROWS = 3
"""Of a system, for its own spread to say anything."""
system_of = attrgetter("system")
PRESETS = Path(__file__).parents[1] / "sim" / "presets"


def curves_of_presets() -> dict[str, list[MeasuredCurve]]:
    """Return the curves of each preset, with the spread between systems."""
    split = published_split()
    own_rows = {
        preset: [row for row in split.calibrating if row.system in systems]
        for preset, systems in calibrating_presets().items()
    }
    fitted = {preset: fit_curves(rows) for preset, rows in own_rows.items()}

    several = {own.curve.systems: own for curves in fitted.values() for own in curves if own.across}
    across = [held for own in several.values() for held in own.across]
    across += _elsewhere(fitted, split.other_systems[ELSEWHERE])
    small = _between([held for held in across if held.nbytes < LARGE and held.system in split.alike])
    large = _between([held for held in across if held.nbytes >= LARGE])
    print(f"between systems: {small:.1%} below 16 MiB, {large:.1%} above; {len(across)} rows")
    found = {preset: [_widened(own, small, large) for own in curves] for preset, curves in fitted.items()}
    for preset, first in carried_presets().items():
        found[preset] = _with_carried(preset, first, own_rows, found)
    return found


def _elsewhere(fitted: Mapping[str, list[FittedCurve]], rows: Sequence[MeasuredRow]) -> list[Held]:
    """Return the rows of sets that another one keeps from calibrating, predicted by their preset's curves."""
    found = []
    for preset, systems in judged_presets().items():
        curves = {call_of(own.curve): own.curve for own in fitted.get(preset, [])}
        found += [
            Held(measured_at(curves[call_of(row)], row.nbytes), row.seconds, row.nbytes, row.system)
            for row in rows
            if row.system in systems and call_of(row) in curves
        ]
    return found


def _with_carried(
    preset: str,
    first: str,
    own_rows: Mapping[str, list[MeasuredRow]],
    found: Mapping[str, list[MeasuredCurve]],
) -> list[MeasuredCurve]:
    """Return the curves of *preset*, and what follows from *first* where nothing else was measured."""
    curves = {call_of(curve): curve for curve in found[first]}
    joined = {call_of(curve): curve for curve in found[preset]}
    carrier = Carrier.between(first, preset, own_rows[preset], curves)
    carried = below_own(carrier.carried(own_rows[first]), own_rows[preset])
    for call in dict.fromkeys(map(call_of, carried)):
        wide, beside = curves[call], joined.get(call)
        where = "" if beside is None else f"below {beside.sizes[0]} bytes "
        fit = fit_curve([row for row in (*carried, *own_rows[preset]) if call_of(row) == call]).curve
        times = 1 if carrier.alike else 2
        joined[call] = replace(
            fit,
            systems=() if beside is None else beside.systems,
            spread=max(fit.spread, times * wide.spread),
            spread_large=max(fit.spread_large, times * wide.spread_large),
            source="; ".join(filter(None, (wide.source, beside.source if beside else ""))),
            carried=f"{where}carried over from {carrier}",
        )
    return [joined[call] for call in sorted(joined)]


def _between(rows: list[Held]) -> float:
    """Return the spread of systems that were predicted from others of their kind."""
    systems = [
        spread_of([held.error for held in own])
        for _, group in groupby(sorted(rows, key=system_of), key=system_of)
        if len(own := list(group)) >= MIN_ROWS
    ]
    print(f"systems: {', '.join(f'{own:.1%}' for own in systems)}")
    return spread_of(systems)


def _widened(own: FittedCurve, small: float, large: float) -> MeasuredCurve:
    sources = "; ".join(dict.fromkeys(shipped_systems()[name].source for name in own.curve.systems))
    return replace(
        own.curve,
        spread=max(own.curve.spread, small),
        spread_large=max(own.curve.spread_large, large),
        source=sources,
    )


def main() -> None:
    """Write the tables into the files of the presets."""
    for preset, curves in curves_of_presets().items():
        path = PRESETS / f"{preset}.toml"
        path.write_text(with_measured(preset, curves), encoding="utf-8")
        print(f"{preset}: {len(curves)} curves")


if __name__ == "__main__":
    main()
