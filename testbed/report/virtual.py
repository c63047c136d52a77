"""Result of a script on rank threads: an iteration, its parts, and the links."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collectives.catalogue.admission import Evidence
from collectives.catalogue.selectors import NCCL, OF_LIBRARY
from collectives.timing.formulas.nccl.model import KNOWN
from sim import Trace
from sim.topology import Topology
from sim.units import format_bandwidth, format_time
from testbed.options import evidence
from testbed.output.table import counted, percent, seconds, spell_size
from testbed.plots.drawn_network import drawn_network
from testbed.plots.timeline import last_iteration, timeline_title
from testbed.report.gpu import device_facts, exposed_facts, folded_facts, lost_parts, memory_details, part
from testbed.report.network import alike_links, link_cells
from testbed.report.simulation import MODELS
from testbed.result import Facts, Grid, Part, Plot, Result, Rows, Text, asked, found, quiet, warning
from testbed.studies.carriers import faster_than

if TYPE_CHECKING:
    from collectives.virtual import VirtualReport
    from collectives.virtual.diagnosis.races import Races
    from collectives.virtual.parameters.replicas import ReplicaCheck
    from collectives.virtual.world import Carried
_SPENT = found("seconds", "compute_seconds", "exposed_seconds", "host_seconds")
_OF_ITERATION = (*_SPENT, *found("slowest_rank_seconds", "median_rank_seconds"))
ITERATIONS = (*asked("iteration"), *_OF_ITERATION)
TABLES = {
    "iterations": _OF_ITERATION,
    "ranks": _SPENT,
    "exposed_by": (*asked("collective", "group"), *found("seconds")),
    "lost_to": (*asked("iteration", "cause"), *found("seconds")),
    "carried": (*asked("collective", "ranks"), *found("algorithm", "smallest_bytes", "largest_bytes")),
    "links": (*asked("name"), *found("bandwidth", "nbytes", "utilisation", "saturated_seconds")),
}
"""Tables of a report besides the iterations, by name, with their columns."""

TOP = 6
"""Groups of links, and programs, that are shown."""

COMPARED = 1
"""Kinds of collectives, those of the largest buffers, for which something faster is looked for."""

NOT_CHARGED = (
    "not charged, so time is that of communication alone: --compute h100 (a device), measured, or "
    "profile:FILE.json charges it"
)
"""Said of a run in which no rank has computed."""

WORTH_COMPARING = 1 << 16
"""Bytes below which nothing faster is looked for."""

MOST_THINGS = 8
"""Things that a notice lists."""


def run_result(
    script: str,
    report: VirtualReport,
    topology: Topology,
    *,
    trace: Trace | None = None,
    seed: int | None = None,
    assumed: Mapping[str, Any],
    proved: Sequence[Evidence] = (),
    checked: ReplicaCheck | None = None,
    races: Races | None = None,
    faster: Sequence[str] = (),
    failure: str | None = None,
) -> Result:
    """Return what *script* has taken on *topology*.

    Args:
        script: its path or name.
        report: of its run.
        topology: on which it ran.
        trace: what happened when, for the timeline of a page.
        seed: of what was random.
        assumed: what *report* assumes, as commands accept it again.
        proved: evidence for algorithms that are not shipped.
        checked: whether replicas stayed alike, where that was asked for.
        races: of the ranks' streams, where they were looked for.
        faster: what would carry its collectives faster, in words.
        failure: what has ended it.
    """
    body = {"script": script, **report.to_json(), **evidence.as_json(proved)}
    if checked is not None:
        body["replicas"] = checked.to_json()
        if failure is None and not checked.holds:
            failure = checked.text
    if races is not None:
        body["races"] = races.to_json()
        if failure is None and races.texts:
            failure = races.text
    rows = [{"iteration": number, **own} for number, own in enumerate(body["iterations"], 1)]
    rows = rows or [{"iteration": None, **body["ranks"][0]}]  # of a script without any, the whole run
    tables = {name: Rows(columns, body.pop(name)) for name, columns in TABLES.items() if name in body}
    return Result(
        question=f"What does {script} take on {counted(report.num_ranks, 'rank')} of {report.network}?",
        answer=answer(report),
        method="simulated",
        model=assumptions(report),
        seed=seed,
        topologies={f"{report.network} x {report.num_ranks}": topology.digest()},
        assumptions=assumed,
        rows=Rows(ITERATIONS, rows),
        tables=tables,
        asked=("script", "num_ranks", "network", "conditions"),
        body=body,
        parts=[
            *_plots(script, report, trace, topology),
            *_figures(report),
            *_links(report),
            *_what_is_assumed(report),
            warning(*(f"{line}." for line in faster), gap=False),
            quiet(*(f"{one}." for one in proved), gap=False),
            *([Text([checked.text], gap=False)] if checked is not None and checked.holds else []),
            *([Text([races.text], gap=False)] if races is not None and not races.texts else []),
        ],
        failure=failure,
    )


def answer(report: VirtualReport) -> str:
    """Return in a sentence what an iteration takes, and what of it is computation."""
    steady = report.steady()
    if steady is None:
        return f"{seconds(report.seconds)} until the last rank has finished."
    said = f"An iteration takes {seconds(steady.seconds)}"
    if steady.seconds and any(spent.compute_seconds for spent in report.ranks):
        said += f", of which computation is {percent(steady.compute_seconds / steady.seconds)}"
        waited = steady.exposed_seconds - (steady.host_seconds or 0.0)
        said += f" and exposed communication {percent(waited / steady.seconds)}"
    if report.memory is not None:
        said += f", and {report.memory.peak_bytes / 2**30:.1f} GiB of memory"
    return f"{said}."


def _plots(script: str, report: VirtualReport, trace: Trace | None, topology: Topology) -> Iterator[Plot]:
    """Yield the timeline of the last iteration, and the load of the links."""
    if trace is not None:
        note = "The last iteration; ranks that look alike share a row."
        alone = timeline_title(Path(script).name, report)
        describe = partial(last_iteration, trace, report)
        yield Plot(describe, "Timeline", note, alone, assumptions(report))
    note = "The half of a line at a vertex is what leaves it; utilisation over the whole run."
    yield Plot(partial(drawn_network, topology, report.links), "Load of the links", note)


def _figures(report: VirtualReport) -> Iterator[Part]:
    """Yield the figures, below what the script has printed."""
    yield Text(title=f"\n{counted(report.num_ranks, 'rank')} on {report.network}, in virtual time")
    yield Facts({**facts_of(report), **device_facts(report)})
    if (memory := report.memory) is not None:
        yield Text([f"{'':12}{line}" for line in memory_details(memory)], gap=False)
    if report.folded:
        yield Facts(folded_facts(report), gap=False)
    yield from lost_parts(report)


def _links(report: VirtualReport) -> Iterator[Part]:
    groups = alike_links(report.links)
    if groups:
        cells = [link_cells(alike) for alike in groups[:TOP]]
        columns = ("link", "", "", "used", "bytes", "bandwidth")
        yield Grid(columns, [[*row[:4], *row[5:]] for row in cells], text_columns=3)
    if left := sum(map(len, groups[TOP:])):
        yield quiet(f"{left} more links carried less.", gap=False)


def _what_is_assumed(report: VirtualReport) -> Iterator[Part]:
    """Yield what the figures rest on, by what collectives went, and notices."""
    yield quiet(
        assumptions(report),
        *(f"{_carried(own)}." for own in report.carried[:TOP]),
        *(f"Note: {_shortened(notice)}." for notice in report.notices),
    )


def _carried(own: Carried) -> str:
    """Return by which program which collectives went."""
    sizes = " to ".join(dict.fromkeys(map(spell_size, (own.smallest_bytes, own.largest_bytes))))
    ranks = counted(len(own.hosts), "rank")
    return f"Carried: {own.collective} of {sizes} among {ranks} by {own.algorithm}"


def faster_programs(report: VirtualReport, topology: Topology) -> list[str]:
    """Return what would carry the largest collectives of *report* more than a tenth faster, in words.

    Nothing is said of those of NCCL itself, for which our programs only stand.
    """
    if report.timed_by == "library" or report.algorithm == NCCL:
        return []

    lines = []
    largest = [own for own in report.carried if own.largest_bytes >= WORTH_COMPARING]
    for own in largest[:COMPARED]:
        found = faster_than(
            own.algorithm, own.collective, own.largest_bytes, topology, report.rank_overhead, own.hosts
        )
        if found is not None:
            lines.append(
                f"Faster: {found.algorithm}, {found.seconds_now / found.seconds:.2g} times as fast as "
                f"{own.algorithm} for {own.collective} of {spell_size(own.largest_bytes)} among "
                f"{counted(len(own.hosts), 'rank')} (--algorithm auto takes it)"
            )
    return lines


def _shortened(notice: str) -> str:
    """Return *notice* with no more of the things that it lists than are read."""
    things = notice.split(", ")
    if len(things) <= MOST_THINGS:
        return notice
    return f"{', '.join(things[:MOST_THINGS])} and {len(things) - MOST_THINGS} more (--json lists them)"


def facts_of(report: VirtualReport) -> dict[str, str]:
    """Return the figures of *report* in words, by name; of iterations those of rank 0."""
    facts = {"time": f"{seconds(report.seconds)} until the last rank had finished"}
    spent = report.ranks[0] if not report.iterations else report.iterations[0][0]
    steady = report.steady()
    if steady is not None:
        later = len(report.iterations) - 1
        spent = steady
        facts["iteration"] = (
            f"{seconds(steady.seconds)} (median of {later}); the first, with the set-up, "
            f"{seconds(report.iterations[0][0].seconds)}"
        )
    elif report.iterations:
        facts["iteration"] = f"{seconds(spent.seconds)}, the only one, with the set-up"
    if not report.on_gpu and spent.exposed_seconds == spent.seconds:
        facts["compute"] = NOT_CHARGED
        facts["waiting"] = f"{seconds(spent.exposed_seconds)} for communication, by itself"
        return facts
    facts["compute"] = part(spent.compute_seconds, spent.seconds)
    if report.on_gpu and steady is not None:
        facts.update(exposed_facts(report, steady))
    else:
        facts["exposed"] = f"{part(spent.exposed_seconds, spent.seconds)}, waiting for communication"
    return facts


def assumptions(report: VirtualReport) -> str:
    """Return what the figures of *report* rest on."""
    return f"Simulated: {'; '.join(_assumptions(report))}."


def _assumptions(report: VirtualReport) -> Iterator[str]:
    stands_in = ", for which tensors of the CPU stand, as no rank uses a CUDA device"
    yield f"computation: {report.compute}{stands_in if report.stands_in else ''}"
    if report.slowest != 1:
        yield f"kernels take {report.slowest:.4g} times as long, as on the slowest of all ranks"
    if not report.repeats:
        yield "so another run gives other times"
    yield f"collectives: {report.algorithm}"
    if report.timed_by == "library":
        yield "alone they take what was measured of NCCL's, or what NCCL's model makes likely"
    yield MODELS["links"]
    yield f"transport model {report.transport_model}"
    launches = report.algorithm not in OF_LIBRARY
    rank_overhead = report.rank_overhead if launches else report.rank_overhead.in_one_kernel()
    if rank_overhead.overhead_ps:
        yield f"overhead of {format_time(rank_overhead.overhead_ps)} per message and side"
    if rank_overhead.step_ps:
        yield f"{format_time(rank_overhead.step_ps)} for the launch of each step of a program"
    if rank_overhead.posting_ps:
        yield f"{format_time(rank_overhead.posting_ps)} for each of its messages that leaves a node"
    if rank_overhead.arrival_overhead_ps:
        yield f"what arrives is known after {format_time(rank_overhead.arrival_overhead_ps)}"
    if rank_overhead.reduction_bandwidth is None:
        yield "reducing costs no time"
    else:
        yield f"ranks reduce at {format_bandwidth(rank_overhead.reduction_bandwidth)}"
    launch_ps = report.rank_overhead.step_ps
    if launch_ps and ".xml" in report.algorithm:
        yield "of MSCCL XML all steps are launched once"
    if launch_ps and not launches and any(own.collective not in KNOWN for own in report.carried):
        yield f"a program that stands for NCCL's is launched once, in {format_time(launch_ps)}"
    yield from report.conditions
