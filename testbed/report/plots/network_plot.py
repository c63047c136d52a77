"""A picture of a network: a ring as a circle, a torus as a grid, anything with switches in layers.

Links both ways between two vertices are one line, a link one way is an arrow; where a torus closes, its
link is two stubs at the ends.  Colour and dash tell the classes of links apart; the legend says what they
are.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from sim.topology import Topology
from sim.topology.routing import Wiring
from sim.topology.routing.torus import TorusRouting
from sim.units import format_bandwidth, format_time
from testbed.errors import UsageError
from testbed.output.figure import COLOURS, DASHES, INK, QUIET, annotate, check_plot, new_figure, save
from testbed.report.plots.network_layers import NetworkPart, drawn_wiring, levels, parts

MAX_VERTICES = 4000
MAX_LABELS = 160
MAX_CLASSES = 12

Positions = npt.NDArray[np.float64]


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
        places = _places(topology, wiring, level)
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
        return _lines(self.topology, tail, head, self.places)

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


def _places(topology: Topology, wiring: Wiring, level: npt.NDArray[np.int64]) -> Positions:
    """Return where each vertex stands, shape (vertices, 2)."""
    if isinstance(topology.routing, TorusRouting):
        return _torus([size for size in topology.routing.shape if size > 1])
    if not (level > 0).any():
        return _spring(wiring)
    places = np.zeros((len(wiring.names), 2))
    places[:, 1] = level
    ends = np.concatenate([np.stack([wiring.tail, wiring.head], axis=1), wiring.joins])
    both = np.concatenate([ends, ends[:, ::-1]])
    ends_here = np.ones(len(wiring.names), dtype=bool)
    ends_here[both[:, 0][level[both[:, 1]] > level[both[:, 0]]]] = False
    left = 0.0
    for part in parts(wiring, topology.num_ranks):
        left = _layers(part, left, places, ends_here) + 1.0
    lost = np.flatnonzero(level < 0)
    places[lost] = np.stack([np.arange(len(lost)), np.full(len(lost), -1)], axis=1)
    return places


def _layers(part: NetworkPart, left: float, places: Positions, ends_here: npt.NDArray[np.bool_]) -> float:
    """Place the vertices of *part* from *left* on; return where it ends.

    Switches that lead no higher (*ends_here*) stand in a row of their own, below those that do.
    """
    if part.level == 0:
        places[part.top[0], 0] = left
        return left + 1.0
    right = left
    for below in part.parts:
        right = _layers(below, right, places, ends_here) + (0.6 if below.level else 0.0)
    top = np.array(part.top)
    for row in (top[ends_here[top]], top[~ends_here[top]]):
        reach = max(right - left - 1.0, 0.0) * (1 - 1 / max(1, len(row)) ** 2)
        places[row, 0] = (left + right - 1.0) / 2 + np.linspace(-0.5, 0.5, len(row)) * reach * (len(row) > 1)
    if ends_here[top].any() and not ends_here[top].all():
        places[top[ends_here[top]], 1] -= 0.4
    return right


def _torus(shape: list[int]) -> Positions:
    """Return a circle, a grid, or grids one behind the other; a fourth dimension puts such side by side."""
    if len(shape) <= 1:
        angles = np.arange(math.prod(shape)) * 2 * np.pi / max(1, math.prod(shape))
        return np.stack([np.sin(angles), np.cos(angles)], axis=1)
    at = np.stack(np.unravel_index(np.arange(math.prod(shape)), shape), axis=1).astype(float)
    places = np.stack([at[:, -1], -at[:, -2]], axis=1)
    depth = shape[-3] if len(shape) > 2 else 1
    if depth > 1:
        places += at[:, -3, None] * np.array([0.38, 0.27])
    beside = shape[-1] + 0.38 * depth + 0.5
    for dimension in range(len(shape) - 4, -1, -1):
        places[:, 0] += at[:, dimension] * beside
        beside *= shape[dimension]
    return places


def _spring(wiring: Wiring) -> Positions:
    """Return networkx's force-directed layout."""
    import networkx

    graph = networkx.Graph()
    graph.add_nodes_from(range(len(wiring.names)))
    graph.add_edges_from(zip(wiring.tail.tolist(), wiring.head.tolist(), strict=True))
    layout = networkx.spring_layout(graph, seed=0, method="force")
    return np.array([layout[vertex] for vertex in range(len(wiring.names))]).reshape(-1, 2)


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


def _lines(topology: Topology, tail: int, head: int, places: Positions) -> list[Positions]:
    """Return one straight line, or where a torus closes two stubs."""
    start, end = places[tail], places[head]
    shape = topology.routing.shape if isinstance(topology.routing, TorusRouting) else ()
    if sum(size > 1 for size in shape) > 1:
        at = np.stack(np.unravel_index([tail, head], shape))
        if np.ptp(at, axis=1).max() > 1:
            stub = 0.5 * (end - start) / np.ptp(at, axis=1).max()
            return [np.stack([start, start - stub]), np.stack([end, end + stub])]
    return [np.stack([start, end])]


def _draw_vertices(panel: Any, topology: Topology, wiring: Wiring, places: Positions) -> None:
    ranks = topology.num_ranks
    size = float(np.clip(9000 / max(len(places), 1), 6, 170))
    panel.scatter(*places[:ranks].T, s=size, color=INK, zorder=3)
    panel.scatter(*places[ranks:].T, s=1.3 * size, color="white", edgecolor=INK, marker="s", zorder=3)
    if len(places) > MAX_LABELS:
        return
    from matplotlib.patheffects import withStroke

    beside = np.unique(places[ranks:].round(6)[:, 1], return_counts=True)[1].max(initial=0)
    for vertex, name in enumerate(wiring.names):
        text = name.removeprefix("rank ")
        style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8.0, "color": INK}
        if vertex >= ranks:
            offset = (0, 12)
            if beside > 12:
                offset = (0, 7)
                style |= {"rotation": 90, "rotation_mode": "anchor", "ha": "left", "fontsize": 6.0}
        elif len(text) < 4 and len(places) <= 90:
            offset = (0, 0)
            style |= {"color": "white", "fontsize": 6.5 if len(text) < 3 else 5.0}
        else:
            offset = (0, -10)
            style |= {"fontsize": 6.0 if ranks > 24 else 8.0}
        if style["color"] == INK:
            style["path_effects"] = [withStroke(linewidth=2.0, foreground="white")]  # over lines, too
        panel.annotate(text, places[vertex], offset, textcoords="offset points", zorder=4, **style)
