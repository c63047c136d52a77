"""A document of sections, each of which is written by the command that has its figures.

A section stands between two comments that name it; a command renews its own and leaves the others alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill

from collectives.formats.whole_file import write_whole

OPENING = """# How true the predictions are

What was predicted, what was measured, and where the models fail and why. Each section is written by the
command that is named in it.
"""

ORDER = ("shaped", "incast", "published", "devices", "scripts", "training")
"""Of the sections; others follow by name."""

_SECTION = re.compile(r"<!-- section (?P<name>[\w-]+) -->\n(?P<content>.*?)<!-- end of \1 -->\n", re.DOTALL)


@dataclass(frozen=True)
class Section:
    """A part of a document.

    Attributes:
        name: a word, by which it is found again.
        heading: of it.
        body: Markdown, with headings of the third level and below.
    """

    name: str
    heading: str
    body: str

    @classmethod
    def of_lines(cls, name: str, heading: str, lines: Iterable[str]) -> Section:
        """Return the section of *lines*: paragraphs and items of lists are folded, rows of tables not."""
        return cls(name, heading, "\n".join(map(_folded, lines)))


def _folded(line: str) -> str:
    if line.startswith("|"):
        return line
    indent = "  " if line.startswith("- ") else ""
    return fill(line, 115, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def renew(path: Path, section: Section, opening: str = OPENING) -> None:
    """Write *section* to the document at *path*, in the place of an older one of its name.

    Args:
        path: of the document; where there is none, one is begun.
        section: to be written.
        opening: of a document that is begun.
    """
    text = path.read_text(encoding="utf-8") if path.exists() else opening
    kept = {found["name"]: found["content"] for found in _SECTION.finditer(text)}
    kept[section.name] = f"## {section.heading}\n\n{section.body.strip()}\n"
    head = _SECTION.split(text)[0].rstrip() + "\n"
    write_whole(path, head + "".join(f"\n{_spell(name, kept[name])}" for name in sorted(kept, key=_place)))


def _spell(name: str, content: str) -> str:
    return f"<!-- section {name} -->\n{content}<!-- end of {name} -->\n"


def _place(name: str) -> tuple[int, str]:
    return (ORDER.index(name) if name in ORDER else len(ORDER), name)
