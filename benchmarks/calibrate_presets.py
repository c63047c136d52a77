"""The measured tables of the presets, written from the published collectives that calibrate them.

    python -m benchmarks.calibrate_presets

Only the rows that ``testbed/truth/published/data/split.toml`` gives to calibrate are fitted.  A preset stands
for other machines of its kind, too, so the spread of each of its curves is at least that between systems.
Where several were measured for one curve, each is predicted from the others; within what nine of ten of its
rows lie is one figure for that system, and what nine of ten systems lie within follows from these.  There are
less than nine of them, so that is half again beyond the worst (as a logarithm).  `testbed validate` judges
the result by the rows that are left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from operator import attrgetter
from pathlib import Path

from collectives.models.measured import LARGE
from sim.measured import MeasuredCurve
from testbed.truth.published.fit import FittedCurve, Held, fit_curves, spread_of
from testbed.truth.published.network_text import with_measured
from testbed.truth.published.split import calibrating_presets, published_split
from testbed.truth.published.systems import shipped_systems

MIN_ROWS = 3
"""Of a system, for its own spread to say anything."""
system_of = attrgetter("system")
PRESETS = Path(__file__).parents[1] / "sim" / "presets"


def curves_of_presets() -> dict[str, list[MeasuredCurve]]:
    """Return the curves of each preset, with the spread between systems."""
    rows = published_split().calibrating
    fitted: dict[str, list[FittedCurve]] = {}
    for preset, systems in calibrating_presets().items():
        sources = "; ".join(dict.fromkeys(shipped_systems()[name].source for name in systems))
        fitted[preset] = fit_curves([row for row in rows if row.system in systems], sources)

    several = {own.curve.systems: own for curves in fitted.values() for own in curves if own.across}
    across = [held for own in several.values() for held in own.across]
    small = _between([held for held in across if held.nbytes < LARGE])
    large = _between([held for held in across if held.nbytes >= LARGE])
    print(f"between systems: {small:.1%} below 16 MiB, {large:.1%} above; {len(across)} rows")
    return {preset: [_widened(own, small, large) for own in curves] for preset, curves in fitted.items()}


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


def main(presets: Sequence[str] = ()) -> None:
    """Write the tables into the files of the presets."""
    for preset, curves in curves_of_presets().items():
        path = PRESETS / f"{preset}.toml"
        path.write_text(with_measured(preset, curves), encoding="utf-8")
        print(f"{preset}: {len(curves)} curves")


if __name__ == "__main__":
    main()
