"""Reproduction: a draw as a test for pytest, of at most 20 lines, which fails while it is a violation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from testbed.fuzzing.campaign import Judged
from testbed.fuzzing.draw import Draw, Space
from testbed.fuzzing.program_draw import ProgramDraw

MOST_LINES = 20
_WIDTH = 100


def script_test(judged: Judged, space: Space, conditions: Iterable[object]) -> str:
    """Return a test that repeats *judged*, a run of a script; *conditions*: what its faults are there."""
    script = space.script if space.is_module else str(Path(space.script).resolve())
    kept = {"argv": space.argv, "is_module": space.is_module}
    given = ", ".join(f"{name}={value!r}" for name, value in kept.items() if value)
    return _test(
        judged,
        conditions,
        "from testbed.fuzzing.draw import Draw, Space\n",
        "from testbed.fuzzing.scripts import judge\n",
        f"judge(draw, Space({script!r}{', ' + given if given else ''}))",
    )


def program_test(judged: Judged, conditions: Iterable[object]) -> str:
    """Return a test that repeats *judged*, a run of programs; *conditions*: what its faults are there."""
    imported = (
        "from testbed.fuzzing.program_draw import ProgramDraw\n"
        "from testbed.fuzzing.programs import judge_program\n"
    )
    return _test(judged, conditions, "", imported, "judge_program(draw)")


def _test(judged: Judged, conditions: Iterable[object], before: str, after: str, judging: str) -> str:
    draw: Draw | ProgramDraw = judged.draw
    wrong = "; ".join(f"{name}: {text}" for name, text in judged.violations.items())
    about = [f"# {_short(line)}" for line in wrong.splitlines()[:1]]
    about += [f"# fault: {_short(str(condition))}" for condition in conditions]
    faults = "from testbed.fuzzing.faults import Fault\n" if draw.faults else ""
    return "\n".join(
        [
            f"{before}{faults}{after}",
            "",
            f"def test_seed_{draw.seed}() -> None:",
            *(f"    {line}" for line in about),
            f"    draw = {type(draw).__name__}(",
            *(f"        {line}" for line in _wrapped(_arguments(draw))),
            "    )",
            f"    assert {judging}.violations == {{}}",
            "",
        ]
    )


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
