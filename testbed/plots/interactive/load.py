"""Load of links on the drawn network: the half of a line at a vertex is what leaves it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from testbed.output.figure import INK
from testbed.plots.interactive.canvas import canvas
from testbed.plots.network_layers import drawn_wiring
from testbed.plots.network_layout import first_half, lines_between, places_of

if TYPE_CHECKING:
    from collectives.timing.links import Links
    from sim.topology import Topology
    from sim.topology.routing import Wiring

MAX_LINKS = 20_000
"""Links up to which a page draws a network."""
_SIGNS = 160  # that a row of names has room for


def link_load(links: Links, topology: Topology) -> Any:
    """Return a plot of how full each link is, on the picture of the network; None if that has too many.

    A line tells the name of its fullest link, and how full that is.
    """
    from bokeh.models import HoverTool, LinearColorMapper, NumeralTickFormatter
    from bokeh.models.annotations import ColorBar
    from bokeh.palettes import Inferno256

    if topology.num_links > MAX_LINKS:
        return None
    wiring = drawn_wiring(topology.routing.wiring())
    places = places_of(topology, wiring)
    drawn = canvas(520, tools="pan,wheel_zoom,box_zoom,reset,save")
    drawn.axis.visible = False
    drawn.y_range.range_padding = 0.3  # names below and above have room on paper too
    drawn.grid.visible = False
    mapper = LinearColorMapper(palette=list(reversed(Inferno256[20:235])), low=0.0, high=1.0)
    data = _halves(topology, wiring, places, links)
    width = {"field": "width"}
    halves = drawn.multi_line(
        "xs", "ys", source=data, line_width=width, line_color={"field": "used", "transform": mapper}
    )
    ranks = topology.num_ranks
    style = {"line_color": INK, "size": float(np.clip(900 / len(places), 3, 11))}
    named: dict[str, Any] = {"x": places[:, 0], "y": places[:, 1], "name": list(wiring.names)}
    of_ranks = {name: own[:ranks] for name, own in named.items()}
    of_switches = {name: own[ranks:] for name, own in named.items()}
    dots = [
        drawn.scatter("x", "y", source=of_ranks, marker="circle", fill_color=INK, **style),
        drawn.scatter("x", "y", source=of_switches, marker="square", fill_color="white", **style),
    ]
    for vertices, offset in ((range(ranks), 15), (range(ranks, len(places)), -15)):
        _write_names(drawn, wiring, places, vertices, offset)
    drawn.add_tools(HoverTool(renderers=[halves], tooltips=[("link", "@name"), ("used", "@used{0.0 %}")]))
    drawn.add_tools(HoverTool(renderers=dots, tooltips=[("", "@name")]))
    bar = ColorBar(
        color_mapper=mapper, formatter=NumeralTickFormatter(format="0 %"), title="utilisation", width=12
    )
    drawn.add_layout(bar, "right")
    return drawn


def _write_names(drawn: Any, wiring: Wiring, places: Any, vertices: range, offset: int) -> None:
    """Write the names of *vertices*, so many pixels below them, in rows that have room for them."""
    names = {vertex: wiring.names[vertex].removeprefix("rank ") for vertex in vertices}
    for height in np.unique(places[list(vertices), 1].round(6)) if names else ():
        row = [vertex for vertex in vertices if abs(places[vertex, 1] - height) < 1e-5]
        if sum(len(names[vertex]) + 2 for vertex in row) <= _SIGNS:
            drawn.text(
                *places[row].T, text=[names[vertex] for vertex in row], y_offset=offset,
                text_align="center", text_baseline="middle", text_font_size="11px", text_color=INK,
            )  # fmt: skip


def _halves(topology: Topology, wiring: Wiring, places: Any, links: Links) -> dict[str, list[Any]]:
    """Return a line for each direction between two vertices, the fullest last, so that it is on top."""
    fullest: dict[tuple[int, int], tuple[float, str]] = {}
    ends: Any = zip(wiring.tail.tolist(), wiring.head.tolist(), strict=True)
    utilisation = links.utilisation[: topology.num_links].tolist()
    for number, (pair, used) in enumerate(zip(ends, utilisation, strict=True)):
        fullest[pair] = max((used, topology.link_name(number)), fullest.get(pair, (-1.0, "")))
    rows = []
    for (tail, head), (used, name) in fullest.items():
        line = lines_between(topology, tail, head, places)
        shown = line[0]
        if len(line) == 1 and (head, tail) in fullest:
            shown = first_half(shown)
        rows.append((used, name, shown[:, 0].tolist(), shown[:, 1].tolist()))
    rows.sort(key=lambda row: row[0])
    return {
        "used": [used for used, *_ in rows],
        "name": [name for _, name, *_ in rows],
        "xs": [xs for *_, xs, _ in rows],
        "ys": [ys for *_, ys in rows],
        "width": [1.0 + 5.0 * used for used, *_ in rows],
    }
