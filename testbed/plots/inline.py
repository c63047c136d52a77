"""Pictures inside a page: what matplotlib draws, as SVG in which each piece says what it is.

Text stays text, so that it is found and copied.  Under the mouse a point, a piece of a bar, a link or a
vertex says its name and values; a click on a name of a legend hides its line (`testbed/result/page.html`).
"""

from __future__ import annotations

import io
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence

from testbed.output.table import percent
from testbed.plots.drawn_network import DrawnNetwork
from testbed.plots.figure import Axis, Line, Lines, NoFigure, Shares
from testbed.plots.picture import LITERAL, drawn

MAX_LINES = 40_000
"""Up to which a page draws a network."""
WIDTH = 11.0
"""Inches that a page has room for, at the size of its text."""
_SVG, _LINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"


def inline(figure: Lines | Shares | DrawnNetwork) -> str:
    """Return *figure* as an element of a page.

    Raises:
        NoFigure: it is a network of too many lines.
    """
    import matplotlib

    if isinstance(figure, DrawnNetwork) and figure.num_lines > MAX_LINES:
        raise NoFigure(f"{figure.num_lines} lines are too many for a page; expected at most {MAX_LINES}")
    file = io.StringIO()
    with matplotlib.rc_context({**LITERAL, "svg.fonttype": "none", "svg.hashsalt": "testbed"}):
        picture = drawn(figure)
        picture.set_figwidth(min(picture.get_figwidth(), WIDTH))
        picture.savefig(file, format="svg", metadata={"Date": None})
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _LINK)
    svg = ElementTree.fromstring(file.getvalue())
    for metadata in svg.findall(f"{{{_SVG}}}metadata"):
        svg.remove(metadata)
    del svg.attrib["width"], svg.attrib["height"]
    said = {place: (name, texts) for place, name, texts in _said(figure)}
    for group in svg.iter(f"{{{_SVG}}}g"):
        place = group.attrib.pop("id", "")  # which the next picture of a page has, too
        if place.startswith("legend"):
            group.set("class", "legend")
        if place in said:
            name, texts = said[place]
            group.set("data-name", name)
            _tell(group, texts)
    return ElementTree.tostring(svg, encoding="unicode")


def _tell(group: ElementTree.Element, texts: Sequence[str]) -> None:
    """Let the marks of *group*, or where it has none its paths, say *texts*, in the order of both."""
    defined = {path for definitions in group.iter(f"{{{_SVG}}}defs") for path in definitions.iter()}
    paths = [path for path in group.iter(f"{{{_SVG}}}path") if path not in defined]
    for shape, text in zip([*group.iter(f"{{{_SVG}}}use")] or paths, texts, strict=False):
        ElementTree.SubElement(shape, f"{{{_SVG}}}title").text = text


def _said(figure: Lines | Shares | DrawnNetwork) -> Iterator[tuple[str, str, Sequence[str]]]:
    """Yield parts of a picture, by the places that `testbed.plots.picture` gives them.

    Of each part its name in the legend, if it has one there that hides it, and what each of its pieces says.
    """
    if isinstance(figure, Lines):
        for number, panel in enumerate(panel for row in figure.rows for panel in row):
            for own, line in enumerate(panel.lines):
                yield f"line-{number}-{own}", line.name, _of_line(line, figure.axis, panel.axis)
            for own, level in enumerate(panel.levels):
                yield f"level-{number}-{own}", level.name, [level.name]
    elif isinstance(figure, Shares):
        for number, (kind, bars) in enumerate(figure.pieces()):
            for row, (case, (left, right)) in enumerate(zip(figure.cases, bars, strict=True)):
                yield f"piece-{number}-{row}", "", [f"{case}\n{kind.name}: {figure.axis.spell(right - left)}"]
    else:
        yield from _of_network(figure)


def _of_line(line: Line, x: Axis, y: Axis) -> list[str]:
    """Return what the points of a line say, or where it has no marks the line itself."""
    if line.mark is None:
        return [line.name]
    names = line.names or [line.name] * len(line.points)
    return [
        f"{name}\n{x.quantity}: {x.spell(at)}\n{y.quantity}: {y.spell(value)}"
        for name, (at, value) in zip(names, line.points, strict=True)
    ]


def _of_network(figure: DrawnNetwork) -> Iterator[tuple[str, str, Sequence[str]]]:
    if figure.with_load:
        for which, links in zip(("idle", "busy"), figure.idle_and_busy(), strict=True):
            yield which, "", [f"{link.name}\n{percent(link.used)} used" for link in links]
    for number, own in enumerate(() if figure.with_load else figure.classes):
        yield f"links-{number}", "", [link.name for link in own.links if not link.is_one_way]
        for place, link in enumerate(own.links):
            yield f"arrow-{number}-{place}", "", [link.name] * 2  # its line and its head
    yield "ranks", "", figure.wiring.names[: figure.num_ranks]
    yield "switches", "", figure.wiring.names[figure.num_ranks :]
