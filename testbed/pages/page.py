"""Page of a result: the question, the answer in a sentence, and the parts that bear it out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Text:
    """Paragraphs; a *quiet* one is small print."""

    paragraphs: Sequence[str]
    title: str = ""
    quiet: bool = False


@dataclass(frozen=True)
class Figures:
    """Figures by name, such as ``time``: ``10.1 ms``."""

    figures: Mapping[str, str]
    title: str = ""


@dataclass(frozen=True)
class Grid:
    """A table; the first *text_columns* are text, the others are figures."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    text_columns: int = 1
    title: str = ""


@dataclass(frozen=True)
class Plot:
    """An interactive plot.

    Attributes:
        figure: a model of Bokeh.
        title: above it.
        note: below it: what is shown, and how to read it.
    """

    figure: Any
    title: str = ""
    note: str = ""


Part: TypeAlias = Text | Figures | Grid | Plot


@dataclass(frozen=True)
class Page:
    """What one file says.

    Attributes:
        question: in words.
        answer: in one sentence.
        document: the result as JSON types (`testbed.output.folder.document`): the command that repeats it,
            how figures were got, by which model and versions.
        parts: in their order.
    """

    question: str
    answer: str
    document: Mapping[str, Any]
    parts: Sequence[Part] = field(default_factory=tuple)
