"""Recording of what a command prints: its tables and sentences as parts of a page."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text as RichText

from testbed.pages.page import Figures, Grid, Part, Text

QUIET = "dim"
WIDTH = 130
"""Columns that a page has room for, where a table is split by them."""


class Recorder(Console):
    """A console that shows nothing and keeps what it is given.

    A command prints its report to it as to the terminal, so a page says what the terminal says.
    """

    def __init__(self) -> None:
        super().__init__(file=io.StringIO(), width=WIDTH)
        self._kept: list[tuple[Any, str]] = []

    def print(self, *objects: Any, style: Any = None, **options: Any) -> None:
        """Keep *objects*."""
        self._kept.extend((own, str(style or "")) for own in objects)

    def parts(self) -> list[Part]:
        """Return what was printed; sentences on end are one part, and so are lines of a name and a figure."""
        parts: list[Part] = []
        for own, style in self._kept:
            shown = getattr(own, "wide", own)  # of a table in two layouts
            if isinstance(shown, Table):
                parts.append(_grid(shown))
                continue
            text = (own.plain if isinstance(own, RichText) else str(own)).strip()
            if not text:
                continue
            _add(parts, text, is_quiet=QUIET in style, is_heading="bold" in style)
        return parts


def _add(parts: list[Part], text: str, *, is_quiet: bool, is_heading: bool) -> None:
    """Add a line, to the last part if it is of the same kind."""
    last = parts[-1] if parts else None
    name, separator, figure = text.partition("  ")
    if is_heading:
        parts.append(Text((), title=text))
    elif separator and not is_quiet and len(name) <= 12 and "\n" not in text:
        figures = {name: figure.strip()}
        if isinstance(last, Figures):
            parts[-1] = Figures({**last.figures, **figures}, last.title)
        else:
            parts.append(Figures(figures))
    elif isinstance(last, Text) and (last.quiet == is_quiet or not last.paragraphs):
        parts[-1] = Text((*last.paragraphs, text), last.title, is_quiet)
    else:
        parts.append(Text((text,), quiet=is_quiet))


def _grid(shown: Table) -> Grid:
    """Return a table of the terminal as one of a page."""
    columns = [_plain(column.header) for column in shown.columns]
    cells: Sequence[list[str]] = [[_plain(cell) for cell in column.cells] for column in shown.columns]
    rows = [list(row) for row in zip(*cells, strict=True)]
    text_columns = sum(column.justify == "left" for column in shown.columns)
    return Grid(columns, rows, text_columns, _plain(shown.title or ""))


def _plain(cell: Any) -> str:
    return cell.plain if isinstance(cell, RichText) else str(cell)
