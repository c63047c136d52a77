"""Shrinking: from a draw that is a violation to the smallest that still is one, as a test for pytest.

Greedy, as Hypothesis and QuickCheck do it: of the candidates that are a little smaller, the first that is
still a violation takes the draw's place, until none is.  Whatever is violated then counts, be it another
oracle than at first.  The test has at most 20 lines, and fails while the draw is a violation.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

from testbed.fuzzing.campaign import Judged
from testbed.fuzzing.draw import Draw, ProgramDraw, Space
from testbed.fuzzing.faults import Fault

D = TypeVar("D", Draw, ProgramDraw)

MOST_ATTEMPTS = 200
_NUMBER = re.compile(r"(?P<name>(--?[\w-]+=)?)(?P<count>[0-9]{1,9})")

MOST_LINES = 20
_WIDTH = 100


def shrink(
    judged: Judged,
    candidates: Callable[[D], Iterator[D]],
    judge: Callable[[D], Judged],
    attempts: int = MOST_ATTEMPTS,
) -> Judged:
    """Return the smallest violation that is found from *judged* on, in so many *attempts*.

    Args:
        judged: a violation.
        candidates: yields draws a little smaller than one, the smallest first.
        judge: carries one out and says what is wrong.
        attempts: runs after which the smallest so far is taken.
    """
    smallest, found = judged, True
    while found:
        found = False
        for candidate in candidates(smallest.draw):
            if not attempts:
                return smallest
            attempts -= 1
            tried = judge(candidate)
            if tried.violations:
                smallest, found = tried, True
                break
    return smallest


def smaller_runs(draw: Draw, space: Space) -> Iterator[Draw]:
    """Yield runs of a script a little smaller than *draw*."""
    yield from _without_parts(draw, sorted(own for own in space.ranks if own < draw.ranks))
    yield from _with_smaller_arguments(draw, space.argv if draw.argv is None else draw.argv)
    plain = {"compute": space.computes[0], "bucket_views": False, "strategy": None, "bucket_cap_mb": None}
    for name, value in plain.items():
        yield from _with(draw, name, value)
    if "ring" in space.algorithms:
        yield from _with(draw, "algorithm", "ring")
    if draw.algorithm != "native":  # known for Gloo alone
        yield from _with(draw, "transport_model", "ideal")
    yield from _with(draw, "network", space.networks[0])
    yield from _with_smaller_faults(draw)


def _with_smaller_arguments(draw: Draw, argv: Sequence[str]) -> Iterator[Draw]:
    """Yield *draw* with one number of the script's arguments smaller, such as that of its iterations."""
    for place, text in enumerate(argv):
        number = _NUMBER.fullmatch(text)
        if number is None:
            continue
        name, count = number["name"], int(number["count"])
        for smaller in sorted({1, count // 2, count - 1} & set(range(1, count))):
            yield replace(draw, argv=(*argv[:place], f"{name}{smaller}", *argv[place + 1 :]))


def smaller_programs(draw: ProgramDraw, ranks: Sequence[int]) -> Iterator[ProgramDraw]:
    """Yield runs of programs a little smaller than *draw*, of some of these numbers of *ranks*."""
    yield from _without_parts(draw, sorted(own for own in ranks if own < draw.ranks))
    yield from _with(draw, "calls", 1)
    for count in (1, draw.count // 2, draw.count - 1):
        if 0 < count < draw.count:
            yield replace(draw, count=count)
    yield from _with(draw, "transport_model", "ideal")
    yield from _with(draw, "network", "switch-100g")
    yield from _with_smaller_faults(draw)


def _without_parts(draw: D, fewer_ranks: Sequence[int]) -> Iterator[D]:
    """Yield *draw* without a fault, without its order, and with fewer ranks."""
    for fault in draw.faults:
        yield replace(draw, faults=tuple(other for other in draw.faults if other is not fault))
    yield from _with(draw, "order", None)
    for ranks in fewer_ranks:
        faults = tuple(replace(fault, rank=fault.rank % ranks) for fault in draw.faults)
        for order in (None,) if draw.order is None else (draw.order, 0, 1):
            yield replace(draw, ranks=ranks, order=order, faults=faults)


def _with(draw: D, name: str, value: Any) -> Iterator[D]:
    """Yield *draw* with another *value*, if it has not got it."""
    if getattr(draw, name) != value:
        yield replace(draw, **{name: value})


def _with_smaller_faults(draw: D) -> Iterator[D]:
    """Yield *draw* with rounder and smaller faults."""
    faults: tuple[Fault, ...] = draw.faults
    for fault in faults:
        for smaller in _smaller_faults(fault):
            yield replace(draw, faults=tuple(smaller if own is fault else own for own in faults))


def _smaller_faults(fault: Fault) -> Iterator[Fault]:
    for name in ("when", "amount"):
        value: float = getattr(fault, name)
        for rounder in (0.0, round(value, 1)):
            if rounder < value:
                yield replace(fault, **{name: rounder})  # type: ignore[arg-type]
    if fault.seed > 1:
        yield replace(fault, seed=fault.seed % 2)
    if fault.rank:
        yield replace(fault, rank=0)


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
