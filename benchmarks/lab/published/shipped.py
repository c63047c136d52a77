"""Published measurements that ship, and the machines that they were made on."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from testbed.calibration.tables.rows import System, read_systems

DATA = Path(__file__).parent / "data"


@cache
def shipped_systems() -> Mapping[str, System]:
    """Return the systems on which the collectives were measured, by the name of the set."""
    return read_systems(DATA / "systems.json")
