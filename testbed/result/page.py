"""A result as one HTML file, which needs no network and prints well.

Bokeh draws the plots, and embeds itself: some 1 MB of each page that has one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collectives.formats.whole_file import write_whole
from testbed.errors import UsageError
from testbed.extras import how_to_install, is_installed
from testbed.output.folder import check_writable
from testbed.result.parts import Facts, Grid, Part, Plot, Text, is_empty
from testbed.result.result import Result

if TYPE_CHECKING:
    from jinja2 import Template

_TEMPLATE = Path(__file__).with_name("page.html")
NOT_INSTALLED = how_to_install("pages need bokeh", "html")


def check_page(path: Path) -> None:
    """Check, before any work is done, that a page can be written to *path*.

    Raises:
        UsageError: bokeh is not installed, *path* is no HTML file, or cannot be written.
    """
    if not is_installed("bokeh"):
        raise UsageError(NOT_INSTALLED)
    if path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"--html {path}: expected a name that ends in .html")
    check_writable(path)


def write_page(path: Path, result: Result) -> None:
    """Write *result* to *path*, whole or not at all.

    Raises:
        OSError: *path* cannot be written.
    """
    write_whole(path, page_of(result))


def page_of(result: Result) -> str:
    """Return *result* as HTML: question, answer, plots, the other parts, and how it was got."""
    plots = [(part, part.draw()) for part in result.parts if isinstance(part, Plot)]
    plots = [(plot, model) for plot, model in plots if model is not None]
    others = [part for part in result.parts if not isinstance(part, Plot)]
    script, drawn, resources = _embedded([model for _, model in plots])
    parts = [_as_mapping(plot, own) for (plot, _), own in zip(plots, drawn, strict=True)]
    parts += [_as_mapping(part) for part in _unsaid(result, others)]
    whole = result.document()
    return _template("page").render(
        result=result,
        parts=parts,
        script=script,
        resources=resources,
        facts=_facts(whole),
        command=whole["command"],
    )


def fragment(result: Result) -> str:
    """Return *result* as HTML within a notebook: the answer, and the parts but for plots."""
    parts = [part for part in result.parts if not isinstance(part, Plot)]
    return _template("fragment").render(
        result=result, parts=[_as_mapping(part) for part in _unsaid(result, parts)]
    )


@cache
def _template(name: str) -> Template:
    from jinja2 import DictLoader, Environment

    text = _TEMPLATE.read_text("utf-8")
    parts = text.partition("<!-- parts -->")[2].partition("<!-- end of parts -->")[0]
    answer = '<p class="answer"><strong>{{ result.answer|units }}</strong></p>'
    environment = Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=DictLoader({"page": text, "fragment": answer + parts}),
    )
    environment.filters["units"] = _with_units
    return environment.get_template(name)


def _with_units(text: str) -> str:
    """Return *text* with figures that no line break parts from their units."""
    return re.sub(r"(?<=\d) (?=\w{1,3}\b|%)", "\u00a0", text)


def _embedded(models: list[Any]) -> tuple[str, tuple[str, ...], str]:
    """Return the script of *models*, where each is drawn, and the library that draws them."""
    if not models:
        return "", (), ""
    from bokeh.embed import components
    from bokeh.resources import Resources

    script, drawn = components(models)
    return script, tuple(drawn), Resources(mode="inline", components=["bokeh"]).render()


def _as_mapping(part: Part, drawn: str = "") -> dict[str, Any]:
    kind = {Text: "text", Facts: "facts", Grid: "grid", Plot: "plot"}[type(part)]
    return {"kind": kind, "part": part, "drawn": drawn}


def _unsaid(result: Result, parts: Sequence[Part]) -> list[Part]:
    """Return *parts* without a beginning that only repeats the question, the answer, or both."""
    kept = [part for part in parts if not is_empty(part)]
    if kept and kept[0] == Text(title=result.question):
        del kept[0]
    first = kept[0] if kept else None
    if isinstance(first, Text) and not first.title:
        if " ".join(first.lines) == result.answer:
            del kept[0]
        elif list(first.lines[:1]) == [result.answer]:
            kept[0] = replace(first, lines=first.lines[1:])
    return kept


def _facts(document: Mapping[str, Any]) -> dict[str, str]:
    """Return how the figures were got, and with what."""
    method = document["method"]
    methods = [method] if isinstance(method, str) else list(method)
    versions = ", ".join(f"{name} {number}" for name, number in document["versions"].items() if number)
    topologies = ", ".join(f"{name} ({digest})" for name, digest in document["topologies"].items())
    seed = document["seed"]
    facts = {
        "How figures were got": ", ".join(methods),
        "What is assumed": str(document["model"]),
        "Seed": "" if seed is None else json.dumps(seed),
        "Networks, with digests": topologies,
        "Versions": versions,
    }
    return {name: text for name, text in facts.items() if text}
