"""Figures of pages, by Bokeh: moved, zoomed, and each piece tells what it is.

drawn     any figure as a model of Bokeh
canvas    the look that all share
lines     lines in panels
bars      timelines and shares
network   networks, with the load of links
"""

from __future__ import annotations

from typing import Any

from testbed.plots.any_figure import Figure
from testbed.plots.drawn_network import DrawnNetwork
from testbed.plots.figure import Lines, Shares
from testbed.plots.timeline import Timeline


def drawn(figure: Figure) -> Any:
    """Return *figure*, which is no drawing yet, as a model of Bokeh.

    Raises:
        NoFigure: a page has no room for it.
    """
    from testbed.plots.page.bars import shares, timeline
    from testbed.plots.page.lines import lines
    from testbed.plots.page.network import network

    if isinstance(figure, Timeline):
        return timeline(figure)
    if isinstance(figure, Lines):
        return lines(figure)
    if isinstance(figure, Shares):
        return shares(figure)
    assert isinstance(figure, DrawnNetwork), figure
    return network(figure)
