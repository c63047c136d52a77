"""The split of the published collectives: which rows calibrate, and which judge; see ``data/split.toml``."""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from benchmarks.lab.published.shipped import DATA
from testbed.calibration.tables.rows import MeasuredRow
from testbed.calibration.tables.tables import read_table

ELSEWHERE = "sizes that another set calibrates"
"""What the smaller rows of a set that calibrates from some size on judge."""


@dataclass(frozen=True)
class Split:
    """Rows by what they are for.

    Attributes:
        calibrating: rows that constants may be fitted to.
        other_sizes: rows of the same systems, of sizes that were not fitted to.
        other_systems: rows of systems of which nothing was fitted to, by what they judge.
        alike: sets among them that were taken as those that calibrate were.
    """

    calibrating: tuple[MeasuredRow, ...]
    other_sizes: tuple[MeasuredRow, ...]
    other_systems: Mapping[str, tuple[MeasuredRow, ...]]
    alike: tuple[str, ...] = ()


def published_rows() -> list[MeasuredRow]:
    """Return all collectives that ship."""
    return read_table(DATA / "collectives.csv")


def published_split(rows: Sequence[MeasuredRow] | None = None) -> Split:
    """Return the published collectives (or *rows* of them), split as the data file says."""
    stated = tomllib.loads((DATA / "split.toml").read_text(encoding="utf-8"))
    judges = {name: what for what, names in stated["judge"].items() for name in names}
    systems: dict[str, list[MeasuredRow]] = defaultdict(list)
    for row in published_rows() if rows is None else rows:
        if row.system not in stated["left_out"] and row.nbytes >= stated["from"].get(row.system, 0):
            systems[row.system].append(row)

    calibrating: list[MeasuredRow] = []
    other_sizes: list[MeasuredRow] = []
    other_systems: dict[str, list[MeasuredRow]] = {what: [] for what in (*stated["judge"], ELSEWHERE)}
    for name, own in systems.items():
        if name in judges:
            other_systems[judges[name]] += own
            continue
        least = stated["beyond"].get(name, 0)
        other_systems[ELSEWHERE] += [row for row in own if row.nbytes < least]
        own = [row for row in own if row.nbytes >= least]
        sizes = sorted({row.nbytes for row in own})
        whole = any(fnmatchcase(name, pattern) for pattern in stated["whole"]["sets"])
        fitted = set(sizes) if whole else {*sizes[::2], sizes[-1]}
        for row in own:
            (calibrating if row.nbytes in fitted else other_sizes).append(row)
    return Split(
        tuple(calibrating),
        tuple(other_sizes),
        {what: tuple(own) for what, own in other_systems.items()},
        tuple(stated["alike"]["sets"]),
    )


def calibrating_presets() -> Mapping[str, list[str]]:
    """Return the sets of measurements from which each preset has its measured tables."""
    nodes = _presets()["node"]
    return {
        preset: [own for name in names for own in nodes.get(name, [name])]
        for preset, names in _presets()["calibrating"].items()
    }


def carried_presets() -> Mapping[str, str]:
    """Return from which preset another one has what was not measured on machines of its own kind."""
    return _presets()["carried"]


def judged_presets() -> Mapping[str, list[str]]:
    """Return the sets of measurements of other systems by which each preset is judged."""
    return _presets()["judging"]


def _presets() -> dict[str, dict[str, Any]]:
    return tomllib.loads((DATA / "presets.toml").read_text(encoding="utf-8"))
