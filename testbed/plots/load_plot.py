"""Load of the links of a network, on its picture.

The two halves of a line are the two directions: the half at a vertex is what leaves it.  Colour says how
full, and so does width, so that the picture reads without colour too.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from testbed.output.figure import FAINT, INK, QUIET, annotate, check_plot, save
from testbed.plots.network_layout import Positions, first_half
from testbed.plots.network_plot import Sheet

if TYPE_CHECKING:
    from collectives.timing.links import Links
    from sim.topology import Topology

UNUSED = 0.0005
"""Utilisation up to which a link is drawn as one that nothing crosses."""


def plot_load(links: Links, topology: Topology, path: Path, *, title: str, note: str) -> None:
    """Draw the utilisation of *topology*'s *links* to *path*, in the format that its suffix names.

    Links that slow ranks have besides are left out.

    Raises:
        UsageError: the network has more vertices than a picture holds, matplotlib is not installed, or
            cannot write this format.
        OSError: *path* cannot be written.
    """
    check_plot(path)
    from matplotlib import colormaps
    from matplotlib.cm import ScalarMappable
    from matplotlib.collections import LineCollection
    from matplotlib.colors import LinearSegmentedColormap, Normalize

    sheet = Sheet.of(topology)
    colours = LinearSegmentedColormap.from_list("load", colormaps["inferno_r"](np.linspace(0.12, 0.88, 256)))
    norm = Normalize(0, 1)
    halves = sorted(_halves(sheet, links), key=lambda half: half[1])
    lines, used = [line for line, _ in halves], np.array([used for _, used in halves])
    busy = used > UNUSED
    thin = float(np.clip(130 / max(len(lines), 1), 0.2, 1.0))  # many lines hide each other
    panel = sheet.panel
    panel.add_collection(
        LineCollection([line for line, is_busy in zip(lines, busy, strict=True) if not is_busy],
                       color=FAINT, linewidth=0.8, zorder=0)
    )  # fmt: skip
    panel.add_collection(
        LineCollection([line for line, is_busy in zip(lines, busy, strict=True) if is_busy],
                       colors=colours(norm(used[busy])), linewidths=thin * (1.0 + 3.5 * used[busy]),
                       capstyle="butt", zorder=1)
    )  # fmt: skip
    if len(sheet.wiring.joins):
        joined = [sheet.places[pair] for pair in sheet.wiring.joins]
        panel.add_collection(
            LineCollection(joined, color=QUIET, linewidth=0.6, linestyle=(0, (1, 2)), zorder=0)
        )
    sheet.draw_vertices()
    bar = sheet.figure.colorbar(
        ScalarMappable(norm, colours), ax=panel, location="right", shrink=0.6, aspect=28, pad=0.01,
        format=lambda value, _: f"{100 * value:.0f} %",
    )  # fmt: skip
    bar.outline.set_visible(False)
    bar.ax.tick_params(colors=INK, labelsize=8.5, length=0)
    bar.set_label("utilisation", color=INK, fontsize=9)
    annotate(sheet.figure, title, note, 150)
    save(sheet.figure, path)


def _halves(sheet: Sheet, links: Links) -> list[tuple[Positions, float]]:
    """Return a line for each direction between two vertices, and how full the fullest link there was."""
    fullest: dict[tuple[int, int], float] = {}
    ends: Any = zip(sheet.wiring.tail.tolist(), sheet.wiring.head.tolist(), strict=True)
    utilisation = links.utilisation[: sheet.topology.num_links].tolist()
    for pair, used in zip(ends, utilisation, strict=True):
        fullest[pair] = max(used, fullest.get(pair, 0.0))
    halves = []
    for (tail, head), used in fullest.items():
        line = sheet.line(tail, head)
        shown = line[0]
        if len(line) == 1 and (head, tail) in fullest:
            shown = first_half(shown)
        halves.append((shown, used))
    return halves
