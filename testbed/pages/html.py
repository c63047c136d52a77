"""HTML file of a page: everything in one file, which needs no network and prints well.

Bokeh draws the plots, and embeds itself: some 1 MB of each page that has one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collectives.formats.whole_file import write_whole
from testbed.errors import UsageError
from testbed.extras import how_to_install, is_installed
from testbed.output.folder import check_writable
from testbed.pages.page import Figures, Grid, Page, Plot, Text

if TYPE_CHECKING:
    from jinja2 import Template

_TEMPLATE = Path(__file__).with_name("page.html")
NOT_INSTALLED = how_to_install("pages need bokeh", "html")


def check_page(path: Path | None) -> None:
    """Check, before any work is done, that a page can be written to *path*; None: no page is wanted.

    Raises:
        UsageError: bokeh is not installed, *path* is no HTML file, or cannot be written.
    """
    if path is None:
        return
    if not is_installed("bokeh"):
        raise UsageError(NOT_INSTALLED)
    if path.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"--html {path}: expected a name that ends in .html")
    check_writable(path)


def write_page(path: Path, page: Page) -> None:
    """Write *page* to *path*, whole or not at all.

    Raises:
        OSError: *path* cannot be written.
    """
    write_whole(path, rendered(page))


def rendered(page: Page) -> str:
    """Return the HTML of *page*."""
    script, figures, resources = _embedded([part for part in page.parts if isinstance(part, Plot)])
    drawn = iter(figures)
    parts = [_as_mapping(part, next(drawn) if isinstance(part, Plot) else "") for part in page.parts]
    return _template().render(
        page=page, parts=parts, script=script, resources=resources, facts=_facts(page.document)
    )


@cache
def _template() -> Template:
    from jinja2 import Environment

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["units"] = _with_units
    return environment.from_string(_TEMPLATE.read_text("utf-8"))


def _with_units(text: str) -> str:
    """Return *text* with figures that no line break parts from their units."""
    return re.sub(r"(?<=\d) (?=\w{1,3}\b|%)", "\u00a0", text)


def _embedded(plots: list[Plot]) -> tuple[str, tuple[str, ...], str]:
    """Return the script of *plots*, where each is drawn, and the library that draws them."""
    if not plots:
        return "", (), ""
    from bokeh.embed import components
    from bokeh.resources import Resources

    script, figures = components([plot.figure for plot in plots])
    return script, tuple(figures), Resources(mode="inline", components=["bokeh"]).render()


def _as_mapping(part: Text | Figures | Grid | Plot, drawn: str) -> dict[str, Any]:
    kind = {Text: "text", Figures: "figures", Grid: "grid", Plot: "plot"}[type(part)]
    return {"kind": kind, "part": part, "drawn": drawn}


def _facts(document: Mapping[str, Any]) -> dict[str, str]:
    """Return how the figures were got, and what repeats them."""
    method = document.get("method", "")
    methods = [method] if isinstance(method, str) else list(method)
    versions = ", ".join(
        f"{name} {number}" for name, number in document.get("versions", {}).items() if number
    )
    topologies = ", ".join(f"{name} ({digest})" for name, digest in document.get("topologies", {}).items())
    seed = document.get("seed")
    facts = {
        "How figures were got": ", ".join(methods),
        "What is assumed": str(document.get("model", "")),
        "Seed": "" if seed is None else json.dumps(seed),
        "Networks, with digests": topologies,
        "Versions": versions,
    }
    return {name: text for name, text in facts.items() if text}
