"""Figures as data: what each shows, whatever draws it: files and pages by `testbed.plots.picture`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeAlias

from testbed.errors import UsageError
from testbed.output.figure import COLOURS, DASHES, INK, MARKS, QUIET
from testbed.output.table import seconds, spell_size

MARGIN = 0.04
"""Of an axis, at either end without a value of its own."""
ROOM_FOR_TICKS = {1: 10, 2: 7, 3: 6}
"""Ticks below a panel at most, by the panels beside each other; of more panels 5."""


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

    def range(self, values: Sequence[float]) -> tuple[float, float]:
        """Return where it begins and ends, of a panel with such *values*."""
        known = [value for value in values if value > 0 or not self.log] or [1.0]
        low, high = min(known), max(known)
        if self.log:
            beside = max((high / low) ** MARGIN, 1.05)
            return self.low or low / beside, self.high or high * beside
        beside = MARGIN * (high - low) or MARGIN * abs(high) or 1.0
        return (
            low - beside if self.low is None else self.low,
            high + beside if self.high is None else self.high,
        )

    def ticks(self, values: Sequence[float], most: int = 10) -> dict[float, str]:
        """Return the text at each tick, of a panel with such *values*: *most* of them at most, or nearly."""
        low, high = self.range(values)
        places = _apart(sorted({*self.at}), most, is_log=self.log) if self.at else _round(low, high, self.log)
        return {place: self.spell(place) for place in places if low <= place <= high}


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

    def values(self) -> list[float]:
        """Return what the vertical axis shows."""
        own = [value for line in self.lines for _, value in line.points]
        return [*own, *(level.value for level in self.levels)]


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

    def places(self) -> list[float]:
        """Return what the common axis shows."""
        return [at for row in self.rows for panel in row for line in panel.lines for at, _ in line.points]

    def ticks(self) -> dict[float, str]:
        """Return the text at each tick of the common axis."""
        return self.axis.ticks(self.places(), ROOM_FOR_TICKS.get(len(self.rows[0]), 5))

    def values(self, number: int) -> list[list[float]]:
        """Return what the vertical axis of each panel of a row shows: alike where panels share it."""
        row = self.rows[number]
        own = [panel.values() for panel in row]
        shared = len({panel.axis.quantity for panel in row}) == 1
        return [list(chain(*own))] * len(row) if shared else own


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


def _apart(places: Sequence[float], most: int, *, is_log: bool) -> list[float]:
    """Return those of *places*, in their order, whose names have room beside each other."""
    at = [math.log(place) if is_log else place for place in places]
    kept: list[int] = []
    for number, own in enumerate(at):
        if not kept or own - at[kept[-1]] >= 0.999 * (at[-1] - at[0]) / most:
            kept.append(number)
    return [places[number] for number in kept]


def _round(low: float, high: float, is_log: bool) -> list[float]:
    """Return round numbers from *low* to *high*: on a logarithmic axis powers of ten, of few 2 and 5 too.

    Where a logarithmic axis has less than three of them, they are as far apart as on another.
    """
    if is_log:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        parts = (1, 2, 5) if high < 300 * low else (1,)
        places = [part * 10.0**power for power in powers for part in parts]
        if sum(low <= place <= high for place in places) >= 3:
            return places
    least = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(least))
    step = max(power * part for part in (1, 2, 5) if power * part <= least)
    return [number * step for number in range(math.floor(low / step), math.ceil(high / step) + 1)]


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
