"""Lines of the keys in a TOML text, which `tomllib` does not tell.

The text is one that `tomllib` has accepted, so a scan suffices: statements end at a line's end outside
of strings and brackets, and each begins with a header of a table or with a key.  Keys inside of inline
tables are not looked into: what stands there is on the line of the statement.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TypeAlias

Place: TypeAlias = tuple[str | int, ...]
"""Keys from the top down; in an array of tables the number of the table, from 0."""

_TOKEN = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}'  # strings of several lines, strings of one
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\])*"'
    r"|'[^']*'"
    r"|#[^\n]*"
    r"|[\[{]|[\]}]|=|\n"
    r"|[^\"'#\[\]{}=\n]+",
    re.DOTALL,
)
_KEY = re.compile(r"\"((?:\\.|[^\"\\])*)\"|'([^']*)'|([A-Za-z0-9_-]+)")


def key_lines(text: str) -> dict[Place, int]:
    """Return the line, from 1, of each table and key of *text*, a correct TOML document."""
    lines: dict[Place, int] = {}
    tables: Counter[Place] = Counter()
    table: Place = ()

    for line, tokens in _statements(text):
        if tokens[0] != "[":
            keys = _keys(tokens[: tokens.index("=")]) if "=" in tokens else ()
            for end in range(1, len(keys) + 1):
                lines.setdefault((*table, *keys[:end]), line)
            continue

        keys = _keys(tokens)
        table = _numbered(keys[:-1], tables)
        if tokens[1:2] == ["["]:
            tables[(*table, *keys[-1:])] += 1

        table = _numbered(keys, tables)
        for end in range(1, len(table) + 1):
            lines.setdefault(table[:end], line)
    return lines


def line_of(place: Place, lines: Mapping[Place, int]) -> int | None:
    """Return the line of *place*, or else of the innermost thing around it that has one."""
    around = (place[:end] for end in range(len(place), 0, -1))
    return next((lines[found] for found in around if found in lines), None)


def _statements(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield each statement: the line where it begins, and its tokens without white space and comments."""
    tokens: list[str] = []
    line = start = 1
    depth = 0
    for token in _TOKEN.findall(text.replace("\r\n", "\n")):
        if token == "\n" and depth == 0 and tokens:
            yield start, tokens
            tokens = []
        elif token.strip() and not token.startswith("#"):
            start = start if tokens else line
            tokens.append(token.strip())
            if token in ("[", "{"):
                depth += 1
            elif token in ("]", "}"):
                depth -= 1
        line += token.count("\n")
    if tokens:
        yield start, tokens


def _keys(tokens: list[str]) -> tuple[str, ...]:
    """Return the keys of a dotted key or header."""
    return tuple("".join(found) for token in tokens for found in _KEY.findall(token))


def _numbered(keys: tuple[str, ...], tables: Counter[Place]) -> Place:
    """Return *keys* with the number of the latest table behind each array of tables."""
    place: Place = ()
    for key in keys:
        place = (*place, key)
        if tables[place]:
            place = (*place, tables[place] - 1)
    return place
