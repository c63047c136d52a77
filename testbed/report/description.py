"""Description of an algorithm: the parts of its docstring, for a terminal and for Markdown."""

from __future__ import annotations

import inspect
import re
import sys
from dataclasses import dataclass

from collectives.algorithms.shared.halves import Halves
from collectives.docstrings import docstring_of, entries_of
from collectives.program import Algorithm

_OPENING = re.compile(r"^Yield this rank's steps? of ")
_SECTION = re.compile(r"^(Args|Raises|Yields):$")
_REFERENCE = re.compile(r"^as `(\w+)`")


@dataclass(frozen=True)
class Description:
    """Of one algorithm, in the markup of docstrings (see `plain` and `markdown`).

    Attributes:
        summary: what it is, in one sentence.
        idea: the paragraphs that say how it works and what that costs.
        source: where it comes from, if the author says so; references to another are followed.
        parameters: those that can be bound, with their default, and what the author says of each.
    """

    summary: str
    idea: tuple[str, ...]
    source: str | None
    parameters: tuple[tuple[str, str], ...] = ()


def describe(algorithm: Algorithm) -> Description:
    """Return what the docstring of *algorithm* says."""
    docstring = docstring_of(algorithm.program) or ""
    paragraphs = _paragraphs(docstring)
    idea = tuple(paragraph for paragraph in paragraphs[1:] if not paragraph.startswith("Source:"))
    return Description(
        summary=_summary(paragraphs[0]) if paragraphs else "",
        idea=idea,
        source=_source(paragraphs, algorithm.program.__module__),
        parameters=_parameters(algorithm, docstring),
    )


def module_summary(algorithm: Algorithm) -> str:
    """Return the first sentence of the file that *algorithm* is in: the idea of its family."""
    paragraphs = _paragraphs(docstring_of(sys.modules[algorithm.program.__module__]) or "")
    return paragraphs[0] if paragraphs else ""


def plain(text: str) -> str:
    """Return *text* without the markup of docstrings."""
    return re.sub(r"\*(\w+)\*", r"\1", text.replace("``", "").replace("`", ""))


def markdown(text: str) -> str:
    """Return *text* with the markup of docstrings turned into Markdown's."""
    return re.sub(r"\*(\w+)\*", r"`\1`", text.replace("``", "`"))


def _paragraphs(docstring: str) -> list[str]:
    """Return the paragraphs, one line each, without the sections about arguments and errors."""
    found = [block.splitlines() for block in re.split(r"\n\s*\n", docstring.strip()) if block.strip()]
    return [" ".join(" ".join(lines).split()) for lines in found if not _SECTION.match(lines[0].strip())]


def _parameters(algorithm: Algorithm, docstring: str) -> tuple[tuple[str, str], ...]:
    """Return ``name=default`` of each parameter, and its text in the section ``Args:``."""
    said = {name: " ".join(text.split()) for name, text in entries_of(docstring, "Args").items()}
    signature = inspect.signature(algorithm.program).parameters
    defaults = {name: signature[name].default for name in algorithm.parameter_names()}
    values = {**defaults, **algorithm.parameters}
    return tuple((f"{name}={_spelled(value)}", said.get(name, "")) for name, value in values.items())


def _spelled(value: object) -> str:
    """Return *value* of a parameter as it is written in Python, an algorithm as its name."""
    return repr(str(value) if isinstance(value, Algorithm | Halves) else value)


def _summary(paragraph: str) -> str:
    text = _OPENING.sub("", paragraph)
    return text[:1].upper() + text[1:]


def _source(paragraphs: list[str], module: str) -> str | None:
    """Return the source; ``as `name``` is replaced by the source of that algorithm in *module*."""
    stated = next((text for text in paragraphs if text.startswith("Source:")), None)
    if stated is None:
        return None
    text = stated.removeprefix("Source:").strip()
    reference = _REFERENCE.match(text)
    other = getattr(sys.modules[module], reference[1], None) if reference else None
    if reference is None or other is None:
        return text
    elsewhere = describe(other).source
    return text if elsewhere is None else elsewhere.removesuffix(".") + text[reference.end() :]
