"""Figures, and what all plots share: colours, an empty figure, the look of a panel, and how it is saved.

Colours are those of Okabe and Ito, which colour-blind readers tell apart; a dash or a marker says
the same once more, so nothing is said by colour alone.  Drawn without a display, and
without matplotlib's global state.
"""

from __future__ import annotations

from pathlib import Path
from textwrap import wrap
from typing import Any

from collectives.formats.whole_file import whole_file
from testbed.errors import UsageError, how_to_install
from testbed.output.folder import check_writable

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = ("-", (0, (4, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))
MARKS = "os^DvP"
INK, FAINT, QUIET = "#333333", "#D9D9D9", "#666666"

NOT_INSTALLED = how_to_install("plots need matplotlib", "plot")


def check_plot(path: Path) -> None:
    """Check, before any work is done, that a plot can be drawn to *path*.

    Raises:
        UsageError: matplotlib is not installed or cannot write this format, or *path* cannot be written.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
    except ImportError:
        raise UsageError(NOT_INSTALLED) from None
    known = FigureCanvasAgg.get_supported_filetypes()
    if path.suffix.removeprefix(".").lower() not in known:
        raise UsageError(f"cannot plot to {path.name}: expected a suffix out of {', '.join(sorted(known))}")
    check_writable(path)


def new_figure(width: float, height: float, **padding: Any) -> Any:
    """Return an empty figure of so many inches, which lays itself out."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(width, height), layout=ConstrainedLayoutEngine(**padding))
    FigureCanvasAgg(figure)
    return figure


def dress(panel: Any) -> None:
    """Give *panel* a faint grid and no frame; its lines are what is looked at."""
    panel.minorticks_off()
    panel.grid(True, color=FAINT, linewidth=0.6)
    panel.set_axisbelow(True)
    panel.tick_params(colors=INK, labelsize=8.5, length=0)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        panel.spines[side].set_color(FAINT)


def annotate(figure: Any, title: str, note: str, characters: int) -> None:
    """Set the *title* above, and the *note* below in lines of so many *characters*."""
    figure.suptitle(title, x=0.01, ha="left", fontsize=12, color=INK, linespacing=1.5)
    lines = "\n".join(wrap(note, characters, break_on_hyphens=False))
    figure.supxlabel(lines, x=0.01, ha="left", fontsize=8, color=QUIET)


def save(figure: Any, path: Path) -> None:
    """Write *figure* to *path*, in the format that its suffix names; the same bytes each time.

    Raises:
        OSError: *path* cannot be written.
    """
    metadata = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    with whole_file(path) as partial:
        figure.savefig(partial, dpi=160, facecolor="white", metadata=metadata.get(path.suffix.lower()))
