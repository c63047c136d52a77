"""Figures as data: what each shows, whatever draws it: files and pages by `testbed.plots.picture`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from testbed.errors import UsageError
from testbed.output.figure import COLOURS, DASHES, INK, MARKS, QUIET
from testbed.output.table import seconds, spell_size


class NoFigure(UsageError):  # noqa: N818 -- nothing is wrong where a page leaves one out
    """There is nothing to draw, or too much."""


@dataclass(frozen=True)
class Axis:
    """One of the axes of a panel.

    Attributes:
        quantity: what it shows, and its unit.
        log: whether it is logarithmic.
        spell: a value in words.
        low: where it begins; None: where the values do, or somewhat before.
        high: where it ends.
        at: values at which ticks stand; empty: round numbers.
    """

    quantity: str
    log: bool = False
    spell: Callable[[float], str] = "{:g}".format
    low: float | None = None
    high: float | None = None
    at: Sequence[float] = ()


@dataclass(frozen=True)
class Line:
    """A line of a panel, or marks; without points it is left out.

    Attributes:
        name: in the legend, where each stands once; empty: not there.
        points: x and y of each.
        colour: in hexadecimal digits.
        dash: which kind; None: marks that no line joins.
        mark: which kind; None: a line without marks.
        filled: whether its marks are.
        width: of the line, in points.
        size: of the marks.
        names: of each point; empty: that of the line.
        written: whether the names of its points stand beside them.
    """

    name: str
    points: Sequence[tuple[float, float]]
    colour: str = COLOURS[0]
    dash: int | None = 0
    mark: int | None = 0
    filled: bool = True
    width: float = 1.6
    size: float = 4.5
    names: Sequence[str] = ()
    written: bool = False


@dataclass(frozen=True)
class Level:
    """A horizontal line through a panel, at *value*; otherwise as `Line`."""

    value: float
    name: str
    colour: str = QUIET
    dash: int = 0
    width: float = 1.0


@dataclass(frozen=True)
class Panel:
    """Lines, with the vertical axis that they have; *heading* stands above it."""

    axis: Axis
    lines: Sequence[Line]
    levels: Sequence[Level] = ()
    heading: str = ""


@dataclass(frozen=True)
class Lines:
    """Lines over a common axis, in one panel or in rows of as many.

    Panels of a row share the vertical axis if they show the same quantity.

    Attributes:
        axis: below all panels.
        rows: of panels.
        marked: a value of the axis that a vertical line marks.
    """

    axis: Axis
    rows: Sequence[Sequence[Panel]]
    marked: float | None = None


@dataclass(frozen=True)
class Kind:
    """What pieces of one look are: *name* in the legend, where empty not there."""

    name: str
    colour: str
    hatched: bool = False


@dataclass(frozen=True)
class Shares:
    """Bars of pieces: a bar for each case, the first on top.

    Attributes:
        axis: what the length of a piece is.
        cases: names of the bars, each once.
        parts: names of the pieces in the legend, and of each the share that it has of each case; less than
            0 is not drawn.
        within: between which two lengths nine in ten measurements of each case end; empty: not known.
    """

    axis: Axis
    cases: Sequence[str]
    parts: Sequence[tuple[str, Sequence[float]]]
    within: Sequence[tuple[float, float]] = ()

    def pieces(self) -> list[tuple[Kind, list[tuple[float, float]]]]:
        """Return the kind of each part, and from where to where it goes in each bar."""
        left = [0.0] * len(self.cases)
        found = []
        for number, (name, shares) in enumerate(self.parts):
            right = [start + max(share, 0.0) for start, share in zip(left, shares, strict=True)]
            kind = Kind(name, COLOURS[number % len(COLOURS)], number >= len(COLOURS))
            found.append((kind, list(zip(left, right, strict=True))))
            left = right
        return found

    def longest(self) -> float:
        """Return how far the longest bar goes, with its band; 1 where all are empty."""
        ends = [end for _, bars in self.pieces() for _, end in bars]
        return max([*ends, *(high for _, high in self.within)], default=0.0) or 1.0


@dataclass(frozen=True)
class Drawing:
    """What is a drawing already: an SVG, such as that of a schedule."""

    svg: str


def numbered(number: int) -> dict[str, Any]:
    """Return the look of a `Line`: neighbours differ in colour and mark, others in dash and mark."""
    turn, place = divmod(number, len(COLOURS))
    return {
        "colour": COLOURS[place],
        "dash": turn % len(DASHES),
        "mark": (place + turn) % len(MARKS),
        "filled": turn % 2 == 0,
    }


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

    Buffers without a byte have no place on its axis, which is logarithmic, and are left out.

    Args:
        times: in seconds; those of 0 are left out.
        floor: what no algorithm goes below.
        quantity: what *times* are of.
        busbw: in B/s, for a panel of its own.

    Raises:
        NoFigure: all are of one size.
    """
    times, busbw = _of_some_bytes(times), busbw and _of_some_bytes(busbw)
    if len({size for points in times.values() for size, _ in points}) < 2:
        raise NoFigure("one size is no curve; name several, such as --nbytes 4K-64M")
    looks = {name: numbered(number) for number, name in enumerate(name for name in times if name != NATIVE)}
    looks[NATIVE] = dict(NATIVE_LOOK)
    drawn = {name: sorted(point for point in points if point[1]) for name, points in times.items()}
    ends = {name: points[-1] for name, points in (drawn if busbw is None else busbw).items() if points}
    order = sorted(filter(drawn.get, drawn), key=lambda name: ends[name], reverse=True)
    lines = [_line("floor", sorted({point for point in floor if all(point)}), FLOOR_LOOK)]
    lines += [_line(name, drawn[name], looks[name]) for name in order]
    panels = [Panel(Axis(quantity, log=True, spell=spell_time), lines)]
    if busbw is not None:
        axis = Axis("bus bandwidth (GB/s)", spell="{:.4g}".format, low=0.0)
        faster = [
            _line(name, sorted((at, value / 1e9) for at, value in busbw[name]), looks[name]) for name in order
        ]
        panels.append(Panel(axis, faster))
    return Lines(size_axis(size for points in times.values() for size, _ in points), [panels])


def _of_some_bytes(curves: Curves) -> Curves:
    return {name: [point for point in points if point[0]] for name, points in curves.items()}


def size_axis(sizes: Iterable[float]) -> Axis:
    """Return the axis of buffers of such *sizes*."""
    return Axis("size of the buffer", log=True, spell=lambda size: spell_size(int(size)), at=sorted({*sizes}))


def spell_time(value: float) -> str:
    """Return a time without digits that say nothing."""
    number, *unit = seconds(value).split()  # 0, a tick below the axis, has none
    return " ".join((f"{float(number):g}", *unit))


def _line(name: str, points: Sequence[tuple[float, float]], look: Mapping[str, Any]) -> Line:
    return Line(name, points, **look)
