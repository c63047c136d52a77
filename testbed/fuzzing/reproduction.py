"""Reproduction: a draw as a test for pytest, of at most 20 lines, which fails while it is a violation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from typing import Any

from testbed.fuzzing.campaign import Judged
from testbed.fuzzing.faults import Fault

MOST_LINES = 20
_WIDTH = 100


def with_test(
    judged: Judged, conditions: Iterable[object], drawn: tuple[str, str], judging: tuple[str, str]
) -> Judged:
    """Return *judged* with a test that repeats it.

    Args:
        judged: a violation.
        conditions: what its faults are there.
        drawn: the module of its draw, and the names that the test imports from there.
        judging: the module of what judges it, and the call that does.
    """
    draw = judged.draw
    wrong = "; ".join(f"{name}: {text}" for name, text in judged.violations.items())
    about = [f"# {_short(line)}" for line in wrong.splitlines()[:1]]
    about += [f"# fault: {_short(str(condition))}" for condition in conditions]
    imports = [f"from {drawn[0]} import {drawn[1]}"]
    imports.append(f"from {judging[0]} import {judging[1].partition('(')[0]}")
    if draw.faults:
        imports.append(f"from {Fault.__module__} import Fault")
    lines = [
        *sorted(imports),
        "",
        "",
        f"def test_seed_{draw.seed}() -> None:",
        *(f"    {line}" for line in about),
        f"    draw = {type(draw).__name__}(",
        *(f"        {line}" for line in _wrapped(_arguments(draw))),
        "    )",
        f"    assert {judging[1]}.violations == {{}}",
        "",
    ]
    return replace(judged, test="\n".join(lines))


def _short(text: str) -> str:
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"


def _arguments(draw: Any) -> list[str]:
    """Return the arguments that make *draw*, but for those at their defaults."""
    given = {own.name: getattr(draw, own.name) for own in fields(draw) if own.name != "faults"}
    default = {own.name: own.default for own in fields(draw)}
    arguments = [f"{name}={value!r}," for name, value in given.items() if value != default[name]]
    if draw.faults:
        arguments.append(f"faults=({' '.join(f'{fault!r},' for fault in draw.faults)}),")
    return arguments


def _wrapped(parts: Sequence[str]) -> list[str]:
    """Return *parts* in as few lines as they fit in."""
    lines: list[str] = []
    for part in parts:
        if lines and len(lines[-1]) + len(part) < _WIDTH:
            lines[-1] += f" {part}"
        else:
            lines.append(part)
    return lines
