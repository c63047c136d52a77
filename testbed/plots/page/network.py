"""A network on a page: a line tells its name, and how full it is."""

from __future__ import annotations

from typing import Any

import numpy as np

from testbed.output.figure import INK, QUIET
from testbed.plots.drawn_network import DrawnNetwork, LinkClass
from testbed.plots.figure import NoFigure
from testbed.plots.page.canvas import add_legend, canvas
from testbed.plots.page.lines import DASHES

MAX_LINES = 40_000
"""Up to which a page draws a network."""
_SIGNS = 160  # that a row of names has room for


def network(figure: DrawnNetwork) -> Any:
    """Return the plot.

    Raises:
        NoFigure: it has too many lines.
    """
    from bokeh.models import HoverTool

    if figure.num_lines > MAX_LINES:
        raise NoFigure(f"{figure.num_lines} lines are too many for a page; expected at most {MAX_LINES}")
    drawn = canvas(520, tools="pan,wheel_zoom,box_zoom,reset,save")
    drawn.axis.visible = False
    drawn.y_range.range_padding = 0.3  # names below and above have room on paper too
    drawn.grid.visible = False
    places, ranks = figure.places, figure.num_ranks
    for pair in places[figure.wiring.joins]:
        drawn.line(*pair.T, line_color=QUIET, line_dash="dotted")
    lines = [_draw_class(drawn, own, with_load=figure.with_load) for own in figure.classes[::-1]]
    named = {own.name: [drawn_class] for own, drawn_class in zip(figure.classes[::-1], lines, strict=True)}
    add_legend(drawn, named, "below")
    style = {"line_color": INK, "size": float(np.clip(900 / len(places), 3, 11))}
    dots: dict[str, Any] = {"x": places[:, 0], "y": places[:, 1], "name": list(figure.wiring.names)}
    of_ranks = {name: own[:ranks] for name, own in dots.items()}
    of_switches = {name: own[ranks:] for name, own in dots.items()}
    vertices = [
        drawn.scatter("x", "y", source=of_ranks, marker="circle", fill_color=INK, **style),
        drawn.scatter("x", "y", source=of_switches, marker="square", fill_color="white", **style),
    ]
    for some, offset in ((range(ranks), 15), (range(ranks, len(places)), -15)):
        _write_names(drawn, figure, some, offset)
    used = [("used", "@used{0.0 %}")] if figure.with_load else []
    drawn.add_tools(HoverTool(renderers=lines, tooltips=[("link", "@name"), *used]))
    drawn.add_tools(HoverTool(renderers=vertices, tooltips=[("", "@name")]))
    return drawn


def _draw_class(drawn: Any, links: LinkClass, *, with_load: bool) -> Any:
    """Draw the links of one class, coloured by how full they are, or as the legend says."""
    from bokeh.models import LinearColorMapper, NumeralTickFormatter
    from bokeh.models.annotations import Arrow, ColorBar, NormalHead
    from bokeh.palettes import Inferno256

    data = {
        "xs": [link.points[:, 0].tolist() for link in links.links],
        "ys": [link.points[:, 1].tolist() for link in links.links],
        "name": [link.name for link in links.links],
        "used": [link.used for link in links.links],
        "width": [1.0 + 5.0 * link.used if with_load else 1.5 for link in links.links],
    }
    colour: Any = links.colour
    if with_load:
        mapper = LinearColorMapper(palette=list(reversed(Inferno256[20:235])), low=0.0, high=1.0)
        colour = {"field": "used", "transform": mapper}
        percent = NumeralTickFormatter(format="0 %")
        drawn.add_layout(
            ColorBar(color_mapper=mapper, formatter=percent, title="utilisation", width=12), "right"
        )
    look = {"line_color": colour, "line_width": {"field": "width"}, "line_dash": DASHES[links.dash]}
    lines = drawn.multi_line("xs", "ys", source=data, **look)
    for link in links.links:
        if link.is_one_way:
            (x, y), (to_x, to_y) = link.points[[0, -1]].tolist()
            head = NormalHead(size=8, fill_color=links.colour, line_color=None)
            ends: Any = {"x_start": x, "y_start": y, "x_end": to_x, "y_end": to_y, "line_color": links.colour}
            drawn.add_layout(Arrow(**ends, end=head))
    return lines


def _write_names(drawn: Any, figure: DrawnNetwork, vertices: range, offset: int) -> None:
    """Write the names of *vertices*, so many pixels below them, in rows that have room for them."""
    places = figure.places
    names = {vertex: figure.wiring.names[vertex].removeprefix("rank ") for vertex in vertices}
    for height in np.unique(places[list(vertices), 1].round(6)) if names else ():
        row = [vertex for vertex in vertices if abs(places[vertex, 1] - height) < 1e-5]
        if sum(len(names[vertex]) + 2 for vertex in row) <= _SIGNS:
            drawn.text(
                *places[row].T, text=[names[vertex] for vertex in row], y_offset=offset,
                text_align="center", text_baseline="middle", text_font_size="11px", text_color=INK,
            )  # fmt: skip
