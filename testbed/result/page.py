"""A result as one page of HTML, which needs no network and prints well.

Plots are pictures by matplotlib (`testbed.plots.inline`).  Timelines, through which one moves, are drawn by
Bokeh, which embeds itself: some 1 MB of each page that has one.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import UsageError, how_to_install, is_installed
from testbed.output.folder import check_writable
from testbed.result.parts import Facts, Grid, Laid, Part, Plot, Text, fitted

if TYPE_CHECKING:
    from jinja2 import Template

_TEMPLATE = Path(__file__).with_name("page.html")
NEEDED = ("matplotlib", "bokeh")
NOT_INSTALLED = how_to_install(f"pages need {' and '.join(NEEDED)}", "html")


def check_page(path: Path) -> None:
    """Check, before any work is done, that a page can be written to *path*.

    Raises:
        UsageError: what draws is not installed, *path* is no HTML file, or cannot be written.
    """
    if not all(map(is_installed, NEEDED)):
        raise UsageError(NOT_INSTALLED)
    if path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"--html {path}: expected a name that ends in .html")
    check_writable(path)


def rendered(question: str, answer: str, parts: Sequence[Part], document: Mapping[str, Any]) -> str:
    """Return a result as HTML: question, answer, plots, the other parts, and how it was got.

    Args:
        question: in words.
        answer: in one sentence.
        parts: in their order.
        document: the result as JSON types, which says how it was got (`testbed.result.Result.document`).
    """
    laid = _unsaid(question, answer, parts)
    figures, script, resources = _embedded([part for part in laid if isinstance(part, Plot)])
    shown = [
        _as_mapping(part, figures.get(id(part), ""))
        for part in laid
        if not isinstance(part, Plot) or id(part) in figures
    ]
    return _template("page").render(
        question=question,
        answer=answer,
        parts=shown,
        script=script,
        resources=resources,
        has_plots=bool(figures),
        facts=_facts(document),
        command=document["command"],
    )


def fragment(question: str, answer: str, parts: Sequence[Part]) -> str:
    """Return a result as HTML within a notebook: the answer, and the parts but for plots."""
    unsaid = _unsaid(question, answer, parts)
    shown = [_as_mapping(part) for part in unsaid if not isinstance(part, Plot)]
    return _template("fragment").render(answer=answer, parts=shown)


@cache
def _template(name: str) -> Template:
    from jinja2 import DictLoader, Environment

    text = _TEMPLATE.read_text("utf-8")
    parts = text.partition("<!-- parts -->")[2].partition("<!-- end of parts -->")[0]
    answer = '<p class="answer"><strong>{{ answer|units }}</strong></p>'
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


def _embedded(plots: Sequence[Plot]) -> tuple[dict[int, str], str, str]:
    """Return what shows each of *plots*, the script that draws timelines, and its library."""
    from testbed.plots.figure import Drawing, NoFigure
    from testbed.plots.inline import inline
    from testbed.plots.timeline import Timeline

    shown: dict[int, str] = {}
    models: dict[int, Any] = {}
    for plot in plots:
        with suppress(NoFigure):
            figure = plot.describe()
            if isinstance(figure, Drawing):  # as an image, for the style of an SVG is that of a whole page
                coded = base64.b64encode(figure.svg.encode()).decode()
                shown[id(plot)] = f'<img alt="{escape(plot.title)}" src="data:image/svg+xml;base64,{coded}">'
            elif isinstance(figure, Timeline):
                from testbed.plots.page_timeline import timeline

                models[id(plot)] = timeline(figure)
            else:
                shown[id(plot)] = inline(figure)
    if not models:
        return shown, "", ""
    from bokeh.embed import components
    from bokeh.resources import Resources

    script, places = components(list(models.values()))
    shown |= dict(zip(models, places, strict=True))
    return shown, script, Resources(mode="inline", components=["bokeh"]).render()


def _as_mapping(part: Laid, drawn: str = "") -> dict[str, Any]:
    kind = {Text: "text", Facts: "facts", Grid: "grid", Plot: "plot"}[type(part)]
    return {"kind": kind, "part": part, "drawn": drawn}


def _unsaid(question: str, answer: str, parts: Sequence[Part]) -> list[Laid]:
    """Return *parts* without a beginning that only repeats question or answer, or both."""
    kept = [part for part in fitted(parts, None) if part != Text(title=question)]
    first = next((part for part in kept if not isinstance(part, Plot)), None)
    if isinstance(first, Text) and not first.title:
        place = kept.index(first)
        if " ".join(first.lines) == answer:
            del kept[place]
        elif list(first.lines[:1]) == [answer]:
            kept[place] = replace(first, lines=first.lines[1:])
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
