"""Page of a script's run in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testbed.output.table import counted, percent, seconds
from testbed.pages.page import Plot
from testbed.pages.plots.load import link_load
from testbed.pages.plots.timeline import rank_rows, timeline
from testbed.report.plots.timeline_plot import ends_of

if TYPE_CHECKING:
    from collectives.virtual import VirtualReport
    from sim import Trace
    from sim.topology import Topology


def run_question(script: str, report: VirtualReport) -> str:
    """Return what was asked, in words."""
    return f"What does {script} take on {counted(report.num_ranks, 'rank')} of {report.network}?"


def run_answer(report: VirtualReport) -> str:
    """Return in a sentence what an iteration takes, and what of it is computation."""
    steady = report.steady()
    if steady is None:
        return f"{seconds(report.seconds)} until the last rank has finished."
    said = f"An iteration takes {seconds(steady.seconds)}"
    if steady.seconds and any(spent.compute_seconds for spent in report.ranks):
        share = steady.compute_seconds / steady.seconds
        said += f", of which computation is {percent(share)}"
        waited = steady.exposed_seconds - (steady.host_seconds or 0.0)
        said += f" and exposed communication {percent(waited / steady.seconds)}"
    if report.memory is not None:
        said += f", and {report.memory.peak_bytes / 2**30:.1f} GiB of memory"
    return f"{said}."


def run_plots(report: VirtualReport, trace: Trace, topology: Topology) -> list[Plot]:
    """Return the timeline of the last iteration, and the load of the links."""
    plots = []
    windows = {rank: ends_of(report, rank) for rank in range(report.num_ranks)}
    rows = rank_rows(trace, windows)
    if rows:
        note = (
            "The last iteration; ranks that look alike share a row. Drag to move it; the tools beside it "
            "zoom by the wheel or by a box; a piece tells what it is."
        )
        plots.append(Plot(timeline(rows), "Timeline", note))
    drawn = link_load(report.links, topology)
    if drawn is not None:
        note = "The half of a line at a vertex is what leaves it; utilisation over the whole run."
        plots.append(Plot(drawn, "Load of the links", note))
    return plots
