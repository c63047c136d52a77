"""Parts of what is shown of a result: text, facts, tables and plots; and how a terminal shows them."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from rich.console import Console
from rich.table import Table
from rich.text import Text as Words

from testbed.output.table import MIN_WIDTH, table

if TYPE_CHECKING:
    from testbed.plots.picture import Figure

T = TypeVar("T")
Tone = Literal["plain", "quiet", "warning", "verbatim"]


@dataclass(frozen=True)
class Text:
    """Paragraphs.

    Attributes:
        lines: one a paragraph; one of several lines with columns in it stays as it is.
        title: above them.
        tone: *quiet* is small print, *warning* is what to look at first, *verbatim* is of a file and stays
            as it is to the byte.
        wrap: whether lines are broken also where nobody has said how wide the output is.
        gap: whether a terminal leaves a line blank before it.
    """

    lines: Sequence[str] = ()
    title: str = ""
    tone: Tone = "plain"
    wrap: bool = False
    gap: bool = True


@dataclass(frozen=True)
class Facts:
    """Figures by name, such as ``time``: ``10.1 ms``.

    Attributes:
        facts: figures in words, by name.
        title: above them.
        width: columns of a terminal for the names; a longer name takes what it needs.
        gap: whether a terminal leaves a line blank before them.
    """

    facts: Mapping[str, str]
    title: str = ""
    width: int = 10
    gap: bool = True


@dataclass(frozen=True)
class Grid:
    """A table; the first *text_columns* are text, the others are figures.

    Attributes:
        columns: their heads, which may have two lines.
        rows: a cell for each column.
        text_columns: number of columns that are text.
        title: above it.
        bold: rows that stand out, by their number, and cells, by those of row and column.
        narrow: what a terminal shows that has no room for it.
        gap: whether a terminal leaves a line blank before it.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    text_columns: int = 1
    title: str = ""
    bold: frozenset[int | tuple[int, int]] = frozenset()
    narrow: Grid | None = None
    gap: bool = True

    @classmethod
    def of(cls, rows: Iterable[T], columns: Mapping[str, Callable[[T], str]], **look: Any) -> Grid:
        """Return a table of *rows*: by the head of each of its *columns*, what a row says there."""
        return cls([*columns], [[cell(row) for cell in columns.values()] for row in rows], **look)


@dataclass(frozen=True)
class Fitted:
    """Parts that depend on the room there is.

    Attributes:
        fit: returns them for a terminal; for None, a page, where all has room.
    """

    fit: Callable[[Console | None], Sequence[Part]]


@dataclass(frozen=True)
class Plot:
    """A figure, for pages and files; a terminal shows none.

    Attributes:
        describe: returns what it shows, whatever draws it; called only where it is drawn, and raises
            `NoFigure` where there is nothing to draw, or too much.
        title: above it on a page.
        note: below it: what is shown, and how to read it.
        alone: above it where it stands by itself, in a picture; by default *title*.
        assumed: below it there, after *note*; by default how the result was got, and what it assumes.
    """

    describe: Callable[[], Figure]
    title: str = ""
    note: str = ""
    alone: str = ""
    assumed: str = ""
    gap: bool = field(default=False, init=False)


Laid: TypeAlias = Text | Facts | Grid | Plot
Part: TypeAlias = Laid | Fitted


def fitted(parts: Sequence[Part], console: Console | None) -> list[Laid]:
    """Return *parts* that say something, for *console* or for a page."""
    laid: list[Laid] = []
    for part in parts:
        laid += fitted(part.fit(console), console) if isinstance(part, Fitted) else [part]
    return [part for part in laid if not isinstance(part, Text) or part.title or part.lines]


def quiet(*lines: str, gap: bool = True) -> Text:
    """Return small print."""
    return Text(lines, tone="quiet", gap=gap)


def warning(*lines: str, gap: bool = True) -> Text:
    """Return what is to be looked at first."""
    return Text(lines, tone="warning", gap=gap)


_STYLES = {"plain": "", "quiet": "dim", "warning": "yellow"}


def show_parts(console: Console, parts: Sequence[Part], files: Mapping[str, Path] | None = None) -> None:
    """Print *parts* but for plots, and what else was written: *files*, by what they are."""
    shown = [part for part in fitted(parts, console) if not isinstance(part, Plot)]
    for number, part in enumerate(shown):
        if number and part.gap:
            console.print()
        show_part(console, part)
    for what, path in (files or {}).items():
        console.print(f"{what}: {path}", soft_wrap=True)


def as_text(parts: Sequence[Part], files: Mapping[str, Path]) -> str:
    """Return what `show_parts` prints where nobody says how wide the output is."""
    stream = io.StringIO()
    console = Console(file=stream, width=MIN_WIDTH, markup=False, emoji=False, highlight=False)
    show_parts(console, parts, files)
    return stream.getvalue()


def show_part(console: Console, part: Laid) -> None:
    """Print one part of a result."""
    title = getattr(part, "title", "")
    if title and not isinstance(part, Grid):
        console.print(title, style="bold", soft_wrap=True)
    if isinstance(part, Text):
        for line in part.lines:
            if part.tone == "verbatim":
                console.file.write(f"{line}\n")
                continue
            console.print(line, style=_STYLES[part.tone], soft_wrap=part.tone == "plain" and not part.wrap)
    elif isinstance(part, Facts):
        for name, words in part.facts.items():
            console.print(f"{name:{part.width}}  {words}", soft_wrap=True)
    elif isinstance(part, Grid):
        console.print(_what_fits(console, part))


def _what_fits(console: Console, grid: Grid) -> Table:
    """Return the table of *grid*, or of its narrow twin where there is no room for it."""
    wide = _table(grid)
    if grid.narrow is None:
        return wide
    room = console.measure(wide, options=console.options.update(max_width=1000)).maximum
    return wide if room <= console.width else _table(grid.narrow)


def _table(grid: Grid) -> Table:
    rows = [
        [
            Words(cell, "bold") if cell and {number, (number, place)} & grid.bold else cell
            for place, cell in enumerate(row)
        ]
        for number, row in enumerate(grid.rows)
    ]
    return table(grid.columns, rows, text_columns=grid.text_columns, title=grid.title or None)
