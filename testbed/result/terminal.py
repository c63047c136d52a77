"""Parts on a terminal, one below another."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text as Words

from testbed.output.table import MIN_WIDTH, table
from testbed.result.parts import Facts, Grid, Laid, Part, Plot, Text, fitted

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
