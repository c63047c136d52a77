"""Report of ranks on GPUs: what an iteration is lost to, use of the device, memory, equal ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from testbed.output.table import counted, percent, seconds, spell_size
from testbed.result import Grid, Part, quiet

if TYPE_CHECKING:
    from collectives.virtual import VirtualReport
    from collectives.virtual.memory.memories import MemoryReport
    from collectives.virtual.spent import HostSpent, Spent

HOST_BOUND = 0.25
"""Part of an iteration from which on waiting for the host limits it, if it waits for nothing longer."""
HOST_BUSY = 0.9
"""Part of an iteration from which on a busy host limits it, whatever its calls make the stream wait for."""
MOST_CAUSES = 8
"""Collectives of groups that are shown as waited for."""
MOST_MODULES = 6
"""Modules whose memory is shown."""


def exposed_facts(report: VirtualReport, spent: Spent) -> Iterator[tuple[str, str]]:
    """Yield how long rank 0 waits for calls in *spent*, its steady iteration, and if the host limits it."""
    calls = sum(own.seconds for own in report.exposed_by if own.group)
    lost = {own.cause: own.seconds for own in report.lost_to}
    host, communication = lost["host"], sum(lost[cause] for cause in _COMMUNICATION)
    yield "exposed", f"{part(calls, spent.seconds)}, the compute stream waits for communication"
    busy = sum(own.seconds for own in report.issued_by)
    if host > max(communication, HOST_BOUND * spent.seconds) or busy > HOST_BUSY * spent.seconds:
        took = ", ".join(_spell(own) for own in report.issued_by if own.count)
        yield "limit", f"the host: {took}; {_HELP[report.issued_by[0].what]}"


_HELP = {
    "operations": "fewer launches help: torch.compile, CUDA graphs, larger micro-batches",
    "boundaries": "less Python between operations helps: torch.compile, CUDA graphs, larger micro-batches",
    "collectives": "fewer and larger collectives help",
}
"""What makes the host faster, by what takes most of its time."""


def _spell(spent: HostSpent) -> str:
    what = f"{spent.what} in Python" if spent.what == "boundaries" else spent.what
    return f"{spent.count:,} {what} {seconds(spent.seconds)}"


def part(some: float, whole: float) -> str:
    """Return a time, and which part of the *whole* it is."""
    return seconds(some) + (f", {percent(some / whole)}" if whole else "")


_LOST = {
    "host": "the host had not launched the kernel or collective",
    "bytes": "communication: its bytes on the links",
    "latency": "communication: latencies, small messages, shared links",
    "late ranks": "other ranks came later to a collective",
    "pipeline": "a message was not sent yet",
    "slowest rank": "kernels take as long as on the slowest GPU",
    "contention": "kernels take longer beside collectives",
    "other": "copies and other streams",
}
"""What each cause of lost time is, in words."""
_COMMUNICATION = ("bytes", "latency", "late ranks", "pipeline")


def lost_parts(report: VirtualReport) -> Iterator[Part]:
    """Yield what a steady iteration is lost to, beside computation alone, and what it has waited for."""
    steady = report.steady()
    if steady is None:
        return
    rows = [
        [own.cause, _LOST[own.cause], seconds(own.seconds), percent(own.seconds / steady.seconds)]
        for own in report.lost_to
        if own.seconds
    ]
    if rows:
        yield Grid(("lost to", "", "", "of iteration"), rows, text_columns=2)
    if not report.exposed_by:
        return
    rows = [
        [own.collective, own.group, seconds(own.seconds), percent(own.seconds / steady.seconds)]
        for own in report.exposed_by[:MOST_CAUSES]
    ]
    yield Grid(("waited for", "group", "", "of iteration"), rows, text_columns=2)
    if (left := len(report.exposed_by) - MOST_CAUSES) > 0:
        yield quiet(f"{left} more took less.", gap=False)


def device_facts(report: VirtualReport) -> dict[str, str]:
    """Return what part of its peak a device makes of an iteration, and what its memory holds at most."""
    facts = {}
    if (used := report.utilization) is not None:
        facts["MFU"] = (
            f"{percent(used.mfu)} of {used.peak_flops / 1e12:,.0f} TFLOP/s in {used.dtype}; "
            f"HFU {percent(used.hfu)}"
        )
    if (memory := report.memory) is not None:
        of = "" if memory.limit_bytes is None else f" of {spell_size(memory.limit_bytes)}"
        fits = f"{spell_size(memory.peak_bytes)}{of} at {memory.at}"
        facts["memory"] = f"{fits if memory.fits else memory.text}, on rank {memory.rank}"
    return facts


def memory_details(memory: MemoryReport) -> tuple[str, str]:
    """Return what the memory of a device holds at most, by category and by module."""
    return (
        f"of it {largest(memory.by_category, len(memory.by_category), words=True)}",
        f"by module {largest(memory.by_module, MOST_MODULES)}",
    )


def folded_facts(report: VirtualReport) -> dict[str, str]:
    """Return which ranks were carried out once for all that do the same, and which were compared."""
    return {
        "folded": (
            f"{counted(report.num_ranks, 'rank')} as {report.ranks_simulated}: {'; '.join(report.folded)}"
        ),
        "compared": f"{report.compared}; what another one does alone is not seen",
    }


def largest(sizes: Mapping[str, int], most: int, *, words: bool = False) -> str:
    """Return the largest of *sizes*, in words."""
    first = sorted(sizes.items(), key=lambda own: (-own[1], own[0]))[:most]
    shown = {name.replace("_", " ") if words else name: nbytes for name, nbytes in first if nbytes}
    return ", ".join(f"{name} {spell_size(nbytes)}" for name, nbytes in shown.items())
