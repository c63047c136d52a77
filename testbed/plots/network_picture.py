"""Networks as pictures: ranks as dots, switches as squares, and the lines between them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from sim.topology.routing import Wiring
from testbed.output.figure import DASHES, FAINT, INK, QUIET, new_figure
from testbed.plots.drawn_network import JOINED, DrawnNetwork, LinkClass
from testbed.plots.network_layout import Positions

MAX_LABELS = 160
"""Vertices up to which their names are written."""
_OF_NODE = re.compile(r"^node \d+ (?=NIC)")


def draw_network(network: DrawnNetwork) -> Any:
    """Return the figure of matplotlib."""
    from matplotlib.collections import LineCollection

    places, is_wide = network.places, network.is_wide
    figure = new_figure(9.5 if is_wide else 12.0, 9.0 if is_wide else 6.5)
    panel = figure.subplots()
    panel.axis("off")
    panel.margins(0.06, 0.1)
    if is_wide and np.ptp(places, axis=0).all():
        panel.set_aspect("equal")
    if network.with_load:
        _draw_load(figure, panel, network)
    else:
        for number, own in reversed([*enumerate(network.classes)]):
            _draw_class(panel, own, number)
    if len(network.wiring.joins):
        style: dict[str, Any] = {"color": QUIET, "linewidth": 0.6, "linestyle": (0, (1, 2)), "zorder": 0}
        panel.add_collection(LineCollection([*places[network.wiring.joins]], **style, label=JOINED))
    _draw_vertices(panel, network)
    if panel.get_legend_handles_labels()[0] and not network.with_load:
        legend: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.01), "handlelength": 3.4}
        panel.legend(**legend, frameon=False, labelcolor=INK, fontsize=9, ncols=2)
    return figure


def _draw_class(panel: Any, links: LinkClass, number: int) -> None:
    """Draw the links of one class: lines, and arrows where they go one way."""
    from matplotlib.collections import LineCollection

    count = len(links.links)
    style = {"linestyle": DASHES[links.dash], "linewidth": max(0.4, 1.6 - count / 300)}
    style |= {"color": links.colour, "alpha": 1.0 if count < 100 else 0.7}
    lines = [link.points for link in links.links if not link.is_one_way]
    called = {"label": links.name or None, "gid": f"links-{number}"}
    panel.add_collection(LineCollection(lines, zorder=1, **called, **style))
    for place, link in enumerate(links.links):
        if link.is_one_way:
            arrow = {"arrowstyle": "-|>", "shrinkA": 6, "shrinkB": 6, "color": links.colour, "lw": 1.2}
            drawn = panel.annotate("", link.points[1], link.points[0], arrowprops=arrow, zorder=1)
            drawn.arrow_patch.set_gid(f"arrow-{number}-{place}")


def _draw_load(figure: Any, panel: Any, network: DrawnNetwork) -> None:
    """Draw how full links are, by colour and by width, and the bar that says which colour is what."""
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.collections import LineCollection
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    colours = LinearSegmentedColormap.from_list("load", colormaps["inferno_r"](np.linspace(0.12, 0.88, 256)))
    norm = Normalize(0, 1)
    idle, busy = network.idle_and_busy()
    lines = [link.points for link in idle]
    panel.add_collection(LineCollection(lines, color=FAINT, linewidth=0.8, zorder=0, gid="idle"))
    used = np.array([link.used for link in busy])
    thin = float(np.clip(130 / max(network.num_lines, 1), 0.2, 1.0))  # many lines hide each other
    style = {"colors": colours(norm(used)), "linewidths": thin * (1.0 + 3.5 * used), "capstyle": "butt"}
    panel.add_collection(LineCollection([link.points for link in busy], **style, zorder=1, gid="busy"))
    bar = figure.colorbar(
        ScalarMappable(norm, colours), ax=panel, location="right", shrink=0.6, aspect=28, pad=0.01,
        format=lambda value, _: f"{100 * value:.0f} %",
    )  # fmt: skip
    bar.outline.set_visible(False)
    bar.ax.tick_params(colors=INK, labelsize=8.5, length=0)
    bar.set_label("utilisation", color=INK, fontsize=9)


def _draw_vertices(panel: Any, network: DrawnNetwork) -> None:
    """Draw ranks as dots and switches as squares, with their names where there is room."""
    ranks, places = network.num_ranks, network.places
    size = float(np.clip(9000 / max(len(places), 1), 6, 170))
    panel.scatter(*places[:ranks].T, s=size, color=INK, zorder=3, gid="ranks")
    look = {"color": "white", "edgecolor": INK, "marker": "s"}
    panel.scatter(*places[ranks:].T, s=1.3 * size, zorder=3, gid="switches", **look)
    if len(places) > MAX_LABELS:
        return
    from matplotlib.patheffects import withStroke

    up, down = _ways(network.wiring, places)
    beside = np.unique(places[ranks:].round(6)[:, 1], return_counts=True)[1].max(initial=0)
    for vertex, name in enumerate(network.wiring.names):
        text = name.removeprefix("rank ")
        style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 8.0, "color": INK}
        if vertex >= ranks:
            side = -1 if up[vertex] and not down[vertex] else 1  # where no line leaves
            offset = (0, 12 * side)
            if beside > 12:
                text = _OF_NODE.sub("", text)  # the node stands below it
                offset = (0, side * (3 + 0.57 * size**0.5))
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
