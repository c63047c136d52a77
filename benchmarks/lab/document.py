"""Sections of a document, between two comments that name each: a command's, where the rest is its writer's.

``<!-- section shaped -->`` begins a section and ``<!-- end of shaped -->`` ends it.  Headings, what is meant
by figures, and where and why a model fails stand outside: no command writes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from textwrap import fill

from collectives.formats.whole_file import write_whole
from testbed.errors import UsageError
from testbed.output.folder import check_writable
from testbed.result import Grid, Part, Text

WIDTH = 115


def check_section(path: Path, name: str) -> None:
    """Check, before any work is done, that the section *name* of the document at *path* can be renewed.

    Raises:
        UsageError: it cannot; the message says why.
    """
    check_writable(path)
    begin, end = _marks(name)
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if len(re.findall(_between(name), text, re.DOTALL)) != 1:
        raise UsageError(f"{path}: expected one section to be renewed, between the lines {begin} and {end}")


def renew(path: Path, name: str, parts: Sequence[Part]) -> None:
    """Write *parts* to the document at *path*, in place of what the section *name* has held.

    Raises:
        UsageError: there is no such section, or it cannot be written.
    """
    check_section(path, name)
    begin, end = _marks(name)
    section = f"{begin}\n{markdown(parts)}{end}\n"
    text = path.read_text(encoding="utf-8")
    write_whole(path, re.sub(_between(name), lambda _: section, text, flags=re.DOTALL))


def markdown(parts: Sequence[Part]) -> str:
    """Return *parts* as Markdown: paragraphs, items of lists, and tables under their titles."""
    return "\n".join(f"{block}\n" for part in parts for block in _blocks(part))


def _blocks(part: Part) -> Iterator[str]:
    title = getattr(part, "title", "")
    if isinstance(part, Text):
        if title:
            yield f"## {title}"
        items = [line for line in part.lines if line.startswith("- ")]
        yield from (_folded(line) for line in part.lines if line not in items)
        if items:
            yield "\n".join(map(_folded, items))
    elif isinstance(part, Grid):
        if title:
            yield f"{title}:"
        ends = ["--:" if number >= part.text_columns else "---" for number in range(len(part.columns))]
        heads = [" ".join(head.split()) for head in part.columns]
        yield "\n".join([_row(heads), f"|{'|'.join(ends)}|", *map(_row, part.rows)])


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _folded(line: str) -> str:
    indent = "  " if line.startswith("- ") else ""
    return fill(line, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _marks(name: str) -> tuple[str, str]:
    return f"<!-- section {name} -->", f"<!-- end of {name} -->"


def _between(name: str) -> str:
    """Return the pattern of a section with its marks."""
    begin, end = map(re.escape, _marks(name))
    return f"^{begin}\\n.*?^{end}\\n".replace("^", "(?m:^)")
