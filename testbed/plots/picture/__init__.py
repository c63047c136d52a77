"""Pictures: any figure as a file, by matplotlib, in the format that its suffix names.

draw      a figure to a path
lines     lines in panels
bars      timelines and shares
network   networks, with the load of links
"""

from __future__ import annotations

from pathlib import Path

from testbed.errors import UsageError
from testbed.output.figure import annotate, check_plot, save
from testbed.plots.any_figure import Figure
from testbed.plots.drawn_network import DrawnNetwork
from testbed.plots.figure import Drawing, Lines, Shares
from testbed.plots.timeline import Timeline

CHARACTERS_PER_INCH = 16
"""Of the note below."""


def draw(figure: Figure, path: Path, *, title: str, note: str) -> None:
    """Draw *figure* to *path*, with the *title* above and the *note* below, in small print.

    Raises:
        UsageError: matplotlib is not installed, or cannot write this format.
        OSError: *path* cannot be written.
    """
    if isinstance(figure, Drawing):
        from collectives.formats.whole_file import write_whole

        if path.suffix.lower() != ".svg":
            raise UsageError(f"--plot {path}: this drawing is an SVG; expected a name that ends in .svg")
        write_whole(path, figure.svg)
        return
    check_plot(path)
    from testbed.plots.picture.bars import draw_shares, draw_timeline
    from testbed.plots.picture.lines import draw_lines
    from testbed.plots.picture.network import draw_network

    if isinstance(figure, Timeline):
        figure, left_out = figure.first_rows()
        note += f" {left_out} more ranks are not drawn." if left_out else ""
        drawn = draw_timeline(figure)
    elif isinstance(figure, Lines):
        drawn = draw_lines(figure)
    elif isinstance(figure, Shares):
        drawn = draw_shares(figure)
    else:
        assert isinstance(figure, DrawnNetwork)
        drawn = draw_network(figure)
    annotate(drawn, title, note, round(CHARACTERS_PER_INCH * drawn.get_figwidth()))
    save(drawn, path)
