"""Report of a script on rank threads: an iteration, its parts, and the links."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from testbed.output.table import counted, seconds, spell_size, table
from testbed.report.gpu import device_facts, exposed_facts, folded_fact, part, print_exposed
from testbed.report.links import alike_links, link_cells
from testbed.report.simulation import MODELS

if TYPE_CHECKING:
    from rich.console import Console

    from collectives.virtual import VirtualReport
    from collectives.virtual.carried import Carried
    from sim.scenario.rank_overhead import RankOverhead
    from sim.topology import Topology

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


def print_report(console: Console, report: VirtualReport) -> None:
    """Print *report*: figures, links, what they rest on, and notices."""
    ranks = counted(report.num_ranks, "rank")
    console.print()
    console.print(f"{ranks} on {report.network}, in virtual time", style="bold", markup=False)
    console.print()
    for name, text in (*facts_of(report).items(), *device_facts(report), *folded_fact(report)):
        console.print(f"{name:10}  {text}", markup=False, soft_wrap=True)
    print_exposed(console, report)
    groups = alike_links(report.links)
    if groups:
        cells = [link_cells(alike) for alike in groups[:TOP]]
        columns = ("link", "", "", "used", "bytes", "bandwidth")
        console.print()
        console.print(table(columns, [[*row[:4], *row[5:]] for row in cells], text_columns=3))
    if left := sum(map(len, groups[TOP:])):
        console.print(f"{left} more links carried less.", style="dim", markup=False)
    console.print(f"\n{assumptions(report)}", style="dim", markup=False)
    for own in report.carried[:TOP]:
        console.print(f"{_carried(own)}.", style="dim", markup=False)
    for notice in report.notices:
        console.print(f"Note: {_shortened(notice)}.", style="dim", markup=False)


def _carried(own: Carried) -> str:
    """Return by which program which collectives went."""
    sizes = " to ".join(dict.fromkeys(map(spell_size, (own.smallest_bytes, own.largest_bytes))))
    ranks = counted(len(own.hosts), "rank")
    return f"Carried: {own.collective} of {sizes} among {ranks} by {own.algorithm}"


def faster_programs(report: VirtualReport, topology: Topology) -> list[str]:
    """Return what would carry the largest collectives of *report* more than a tenth faster, in words.

    Nothing is said of those of NCCL itself, for which our programs only stand.
    """
    from testbed.studies.carriers import faster_than

    if report.timed_by == "library":
        return []

    lines = []
    largest = [own for own in report.carried if own.largest_bytes >= WORTH_COMPARING]
    for own in largest[:COMPARED]:
        found = faster_than(own.algorithm, own.collective, own.largest_bytes, topology, own.hosts)
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
    if not report.repeats:
        yield "so another run gives other times"
    yield f"collectives: {report.algorithm}"
    if report.timed_by == "library":
        yield "alone they take what was measured of NCCL's, or what NCCL's model makes likely"
    yield MODELS["links"]
    yield f"transport model {report.transport_model}"
    yield from _software(report.rank_overhead)
    yield from report.conditions


def _software(rank_overhead: RankOverhead) -> Iterator[str]:
    """Yield what ranks add to the time of the network."""
    from sim.units import format_bandwidth, format_time

    if rank_overhead.overhead_ps:
        yield f"overhead of {format_time(rank_overhead.overhead_ps)} per message and side"
    if rank_overhead.arrival_overhead_ps:
        yield f"what arrives is known after {format_time(rank_overhead.arrival_overhead_ps)}"
    if rank_overhead.reduction_bandwidth is None:
        yield "reducing costs no time"
    else:
        yield f"ranks reduce at {format_bandwidth(rank_overhead.reduction_bandwidth)}"
