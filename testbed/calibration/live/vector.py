"""Entries of the vector of constants: where a fit begins, what none comes below, and what they concern."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.calibration.live.constants import CACHED
from testbed.calibration.live.rows import Pattern

_FASTER = 1.5
"""Times as fast that memory begins to be taken for where buffers fit into caches."""
_FASTEST = 10.0
"""Times the rate of the largest rows that a link of unknown rate is taken to reach at most."""
_TIME_STEP = 5e-6
_RELATIVE_STEP = 0.02


def first_value(name: str, byte_seconds: float) -> float:
    """Return with what a constant begins."""
    if name in CACHED:
        return byte_seconds / _FASTER
    if _is_of_bytes(name) or "copied" in name:
        return byte_seconds
    return 0.0 if "reduced" in name else 2e-5


def least_value(name: str, rates: Mapping[Any, float], byte_seconds: float) -> float:
    """Return below which a constant cannot be: a time below 0, a link above its rate."""
    if not _is_of_bytes(name):
        return 0.0
    kind = name.partition(" ")[0]
    return 1 / rates[kind] if kind in rates else byte_seconds / _FASTEST


def step_of(name: str, value: float, byte_seconds: float) -> float:
    """Return by how much to move a constant to see what follows."""
    if _is_of_bytes(name):
        return value * _RELATIVE_STEP
    return byte_seconds * _RELATIVE_STEP if _is_of_copies(name) else _TIME_STEP


def concerns(name: str, pattern: Pattern) -> bool:
    """Return whether the time of *pattern* may depend on the constant of that name."""
    by, _, what = name.partition(" ")
    if by not in ("programs", "native"):
        return True
    reduces = what != "reduced" or pattern.collective == "all_reduce"
    return reduces and pattern.is_native == (by == "native")


def neighbours(name: str) -> tuple[str, ...]:
    """Return the entries that follow one of a sharing table: of a flow more, and of the other directions."""
    if not _is_of_bytes(name):
        return ()
    kind, way, flows = name.split()
    more = f"{kind} {way} {int(flows) + 1}"
    return (more, f"{kind} both_ways {flows}") if way == "one_way" else (more,)


def _is_of_bytes(name: str) -> bool:
    return "_way" in name


def _is_of_copies(name: str) -> bool:
    return name.endswith(("reduced", "copied"))
