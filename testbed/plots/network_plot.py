"""A picture of a network: a ring as a circle, a torus as a grid, anything with switches in layers.

Links both ways between two vertices are one line, a link one way is an arrow; where a torus closes, its
link is two stubs at the ends.  Colour and dash tell the classes of links apart; the legend says what they
are.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sim.topology import Topology
from sim.topology.kinds.torus import TorusRouting
from sim.topology.routing import Wiring
from sim.units import format_bandwidth, format_time
from testbed.errors import UsageError
from testbed.output.figure import COLOURS, DASHES, INK, QUIET, annotate, check_plot, new_figure, save
from testbed.plots.network_layers import drawn_wiring, levels
from testbed.plots.network_layout import Positions, lines_between, places_of

MAX_VERTICES = 4000
MAX_LABELS = 160
MAX_CLASSES = 12
_OF_NODE = re.compile(r"^node \d+ (?=NIC)")


def plot_network(topology: Topology, path: Path, *, note: str) -> None:
    """Draw *topology* to *path*, in the format that its suffix names.

    Raises:
        UsageError: the network has more vertices than a picture holds, matplotlib is not installed, or
            cannot write this format.
        OSError: *path* cannot be written.
    """
    check_plot(path)
    sheet = Sheet.of(topology)
    _draw_links(sheet)
    sheet.draw_vertices()
    legend: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.01), "handlelength": 3.4}
    if sheet.panel.get_legend_handles_labels()[0]:
        sheet.panel.legend(**legend, frameon=False, labelcolor=INK, fontsize=9, ncols=2)
    annotate(sheet.figure, f"{topology.name}, {topology.num_ranks} ranks", note, 150)
    save(sheet.figure, path)


@dataclass(frozen=True)
class Sheet:
    """An empty picture of a network, on which each vertex has its place.

    Attributes:
        topology: the network.
        wiring: its vertices, as people see them, and where each link goes.
        places: where each vertex stands, shape (vertices, 2).
        figure: of matplotlib.
        panel: its only one.
    """

    topology: Topology
    wiring: Wiring
    places: Positions
    figure: Any
    panel: Any

    @classmethod
    def of(cls, topology: Topology) -> Sheet:
        """Return the sheet.

        Raises:
            UsageError: the network has more vertices than a picture holds.
        """
        check_drawable(topology)
        wiring = drawn_wiring(topology.routing.wiring())
        level = levels(wiring, topology.num_ranks)
        places = places_of(topology, wiring)
        width, height = np.ptp(places, axis=0)
        wide = isinstance(topology.routing, TorusRouting) or not (level > 0).any()
        figure = new_figure(9.5 if wide else 12.0, 9.0 if wide else 6.5)
        panel = figure.subplots()
        panel.axis("off")
        panel.margins(0.06, 0.1)
        if wide and width and height:
            panel.set_aspect("equal")
        return cls(topology, wiring, places, figure, panel)

    def line(self, tail: int, head: int) -> list[Positions]:
        """Return a straight line from *tail* to *head*, or where a torus closes, a stub at either end."""
        return lines_between(self.topology, tail, head, self.places)

    def draw_vertices(self) -> None:
        """Draw ranks as dots and switches as squares, with their names where there is room."""
        _draw_vertices(self.panel, self.topology, self.wiring, self.places)


def check_drawable(topology: Topology) -> None:
    """Check that a picture has room for *topology*.

    Raises:
        UsageError: it has more vertices.
    """
    num_vertices = len(drawn_wiring(topology.routing.wiring()).names)
    if num_vertices > MAX_VERTICES:
        raise UsageError(
            f"cannot plot {topology.name}: {num_vertices} ranks and switches are too many for "
            f"a picture; expected at most {MAX_VERTICES} (for networks of any size, --ranks says how many)"
        )


def _draw_links(sheet: Sheet) -> None:
    """Draw each class of links, the slowest last."""
    from matplotlib.collections import LineCollection

    panel, topology, wiring, places = sheet.panel, sheet.topology, sheet.wiring, sheet.places
    kinds, kind = np.unique(
        np.stack([topology.link_bandwidth, topology.link_latency], axis=1), axis=0, return_inverse=True
    )
    ends = np.stack([wiring.tail, wiring.head], axis=1)
    ways = {tuple(pair) for pair in ends.tolist()}
    for number, (bandwidth, latency) in list(enumerate(kinds.tolist()))[::-1]:
        mine = ends[kind == number]
        style = {
            "color": COLOURS[number % len(COLOURS)],
            "linestyle": DASHES[number // len(COLOURS) % len(DASHES)],
            "linewidth": max(0.4, 1.6 - len(mine) / 600),
            "alpha": 1.0 if len(mine) < 200 else 0.7,
        }
        label = f"{format_bandwidth(bandwidth)}, {format_time(latency)} ({len(mine)} links)"
        both = {tuple(sorted(pair)) for pair in mine.tolist() if (pair[1], pair[0]) in ways}
        lines = [line for tail, head in sorted(both) for line in sheet.line(tail, head)]
        shown = label if number < MAX_CLASSES else None
        panel.add_collection(LineCollection(lines, zorder=1, **style, label=shown))
        for tail, head in mine.tolist():
            if (head, tail) not in ways:
                arrow = {"arrowstyle": "-|>", "shrinkA": 6, "shrinkB": 6, "color": style["color"], "lw": 1.2}
                panel.annotate("", places[head], places[tail], arrowprops=arrow, zorder=1)
    if len(wiring.joins):
        joined = [(places[tail], places[head]) for tail, head in wiring.joins.tolist()]
        style = {"color": QUIET, "linewidth": 0.6, "linestyle": (0, (1, 2))}
        panel.add_collection(LineCollection(joined, zorder=0, **style, label="a rank and its network card"))


def _draw_vertices(panel: Any, topology: Topology, wiring: Wiring, places: Positions) -> None:
    ranks = topology.num_ranks
    size = float(np.clip(9000 / max(len(places), 1), 6, 170))
    panel.scatter(*places[:ranks].T, s=size, color=INK, zorder=3)
    panel.scatter(*places[ranks:].T, s=1.3 * size, color="white", edgecolor=INK, marker="s", zorder=3)
    if len(places) > MAX_LABELS:
        return
    from matplotlib.patheffects import withStroke

    up, down = _ways(wiring, places)
    beside = np.unique(places[ranks:].round(6)[:, 1], return_counts=True)[1].max(initial=0)
    for vertex, name in enumerate(wiring.names):
        text = name.removeprefix("rank ")
        style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8.0, "color": INK}
        if vertex >= ranks:
            side = -1 if up[vertex] and not down[vertex] else 1  # where no line leaves
            offset = (0, 12 * side)
            if beside > 12:
                text = _OF_NODE.sub("", text)  # the node stands below it
                offset = (0, 7 * side)
                turned = "left" if side > 0 else "right"
                style |= {"rotation": 90, "rotation_mode": "anchor", "ha": turned, "fontsize": 6.0}
        elif len(text) < 4 and len(places) <= 90:
            offset = (0, 0)
            style |= {"color": "white", "fontsize": 6.5 if len(text) < 3 else 5.0}
        else:
            offset = (0, -10)
            style |= {"fontsize": 6.0 if ranks > 24 else 8.0}
        if style["color"] == INK:
            style["path_effects"] = [withStroke(linewidth=2.0, foreground="white")]  # over lines, too
        panel.annotate(text, places[vertex], offset, textcoords="offset points", zorder=4, **style)


def _ways(wiring: Wiring, places: Positions) -> tuple[Any, Any]:
    """Return how many links of each vertex lead up on the picture, and how many down."""
    ends = np.concatenate(
        [np.stack([wiring.tail, wiring.head]), np.stack([wiring.head, wiring.tail])], axis=1
    )
    higher = places[ends[1], 1] > places[ends[0], 1]
    count = len(wiring.names)
    return np.bincount(ends[0][higher], minlength=count), np.bincount(ends[0][~higher], minlength=count)
