"""Figures of collectives over the size of the buffer: time, and bus bandwidth, a line per algorithm."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from testbed.output.figure import INK
from testbed.output.table import seconds, spell_size
from testbed.plots.figure import Axis, Line, Lines, NoFigure, Panel, numbered

Curves: TypeAlias = Mapping[str, Sequence[tuple[float, float]]]
"""Points (size of the buffer, value) of each algorithm."""

NATIVE = "native"
FLOOR_LOOK: Mapping[str, Any] = {"colour": "#9A9A9A", "mark": None, "width": 1.0}
NATIVE_LOOK: Mapping[str, Any] = {"colour": INK, "width": 2.4}


def curves(points: Iterable[tuple[str, float, float]]) -> Curves:
    """Return *points*, each with its name, size and value, as a curve for each name."""
    found: dict[str, list[tuple[float, float]]] = {}
    for name, size, value in points:
        found.setdefault(name, []).append((size, value))
    return found


def over_sizes(
    times: Curves,
    floor: Iterable[tuple[float, float]],
    *,
    quantity: str = "time",
    busbw: Curves | None = None,
) -> Lines:
    """Return the figure: the legend is in the order in which the lines end.

    Args:
        times: in seconds; those of 0 are left out.
        floor: what no algorithm goes below.
        quantity: what *times* are of.
        busbw: in B/s, for a panel of its own.

    Raises:
        NoFigure: all are of one size.
    """
    if len({size for points in times.values() for size, _ in points}) < 2:
        raise NoFigure("one size is no curve; name several, such as --nbytes 4K-64M")
    looks = {name: numbered(number) for number, name in enumerate(name for name in times if name != NATIVE)}
    looks[NATIVE] = dict(NATIVE_LOOK)
    drawn = {name: sorted(point for point in points if point[1]) for name, points in times.items()}
    ends = {name: points[-1] for name, points in (drawn if busbw is None else busbw).items() if points}
    order = sorted(filter(drawn.get, drawn), key=lambda name: ends[name], reverse=True)
    lines = [_line("floor", sorted({point for point in floor if point[1]}), FLOOR_LOOK)]
    lines += [_line(name, drawn[name], looks[name]) for name in order]
    panels = [Panel(Axis(quantity, log=True, spell=spell_time), lines)]
    if busbw is not None:
        axis = Axis("bus bandwidth (GB/s)", spell="{:.4g}".format, low=0.0)
        faster = [
            _line(name, sorted((at, value / 1e9) for at, value in busbw[name]), looks[name]) for name in order
        ]
        panels.append(Panel(axis, faster))
    return Lines(size_axis(size for points in times.values() for size, _ in points), [panels])


def size_axis(sizes: Iterable[float]) -> Axis:
    """Return the axis of buffers of such *sizes*."""
    return Axis("size of the buffer", log=True, spell=lambda size: spell_size(int(size)), at=sorted({*sizes}))


def spell_time(value: float) -> str:
    """Return a time without digits that say nothing."""
    number, unit = seconds(value).split()
    return f"{float(number):g} {unit}"


def _line(name: str, points: Sequence[tuple[float, float]], look: Mapping[str, Any]) -> Line:
    return Line(name, points, **look)
