"""Simulated collectives on a terminal: one as a list of facts, several side by side, and their links."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from testbed.output.table import counted, percent, seconds, spell_size, table
from testbed.report.plots.network_layers import spell_names

if TYPE_CHECKING:
    from collectives.timing.links import Links, LinkUse
    from testbed.studies.simulation import Simulated, SimulationRequest

MODELS = {
    "links": "a message waits for the latency of its way, then shares its links max-min",
    "nccl": "what NCCL 2.30 itself expects, without the links",
    "measured": "what was measured on the machine, by the tables of the network's file, without the links",
    "library": "of NCCL's own choice what was measured, or what NCCL's model makes likely; else a message "
    "waits for the latency of its way, then shares its links max-min",
}
"""What a time follows from, in words."""

REGISTERED = "of registered buffers what NCCL expects of its symmetric kernels, or the links allow; "

TOP = 20
"""Links that are shown unless all are asked for."""

_NAMES = 36
_BAR = 12
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def model_of(request: SimulationRequest) -> str:
    """Return what the times of a request follow from, in words."""
    registered = request.timed_by == "library" and request.assumed.software.symmetric
    return (REGISTERED if registered else "") + MODELS[request.timed_by]


def facts_of(own: Simulated) -> dict[str, str]:
    """Return what is known of a run, in words, by name."""
    run = own.run
    facts = {"time": seconds(run.seconds)}
    if run.algorithm != own.name:
        facts["chosen" if own.name.startswith("auto") else "in full"] = run.algorithm
    if own.above_floor is not None:
        facts["floor"] = f"{seconds(run.floor_seconds)}; the time is {own.above_floor:.2f} times that"
    if run.interval_seconds is not None:
        low, high = run.interval_seconds
        facts["interval"] = f"{seconds(low)} to {seconds(high)}, nine of ten measurements"
    if run.beyond:
        facts["beyond"] = run.beyond
    facts["algbw"] = _bandwidth(run.algbw)
    facts["busbw"] = _bandwidth(run.busbw)
    facts["engine"] = run.engine
    if own.has_links and (fullest := run.links.bottleneck):
        full = (
            ""
            if fullest.saturated_seconds is None
            else f", saturated for {seconds(fullest.saturated_seconds)}"
        )
        facts["bottleneck"] = (
            f"{fullest.name}, {percent(fullest.utilisation)} of {_bandwidth(fullest.bandwidth)}{full}"
        )
    return facts


def comparison(results: Sequence[Simulated]) -> Table:
    """Return a line for each run; of each size the fastest is bold."""
    least: dict[int, int] = {}
    for own in results:
        least[own.run.nbytes] = min(own.run.time_ps, least.get(own.run.nbytes, own.run.time_ps))

    several_sizes = len(least) > 1
    rows = []

    for number, own in enumerate(results):
        run, bottleneck = own.run, own.run.links.bottleneck if own.has_links else None
        best = run.time_ps == least[run.nbytes] and len(results) > len(least)
        first = number == 0 or results[number - 1].run.nbytes != run.nbytes
        cells = [
            *([spell_size(run.nbytes) if first else ""] if several_sizes else []),
            _with_choice(own),
            "" if bottleneck is None else bottleneck.name,
            "–" if bottleneck is None else percent(bottleneck.utilisation),
            seconds(run.seconds),
            "–" if own.above_floor is None else f"{own.above_floor:.2f}",
            f"{run.algbw / 1e9:.2f}",
            f"{run.busbw / 1e9:.2f}",
            run.engine,
        ]
        rows.append([Text(cell, "bold") if best and cell else cell for cell in cells])

    heads = (
        "algorithm\n", "bottleneck\n", "used\n", "time\n", "time /\nfloor", "algbw\n(GB/s)", "busbw\n(GB/s)",
        "engine\n",
    )  # fmt: skip
    lead = ("size\n",) if several_sizes else ()

    return table((*lead, *heads), rows, text_columns=2 + len(lead))


def _with_choice(own: Simulated) -> str:
    """Return how the algorithm is called, of ``auto`` with what was chosen."""
    is_choice = own.name.partition(":")[0] == "auto" and own.run.algorithm != own.name
    return f"auto: {own.run.algorithm}" if is_choice else own.name


def carried_on(results: Sequence[Simulated]) -> Iterator[str]:
    """Yield which sizes go beyond what was measured, a line for each way."""
    sizes: dict[str, list[int]] = {}
    for own in results:
        if own.run.beyond:
            sizes.setdefault(own.run.beyond, []).append(own.run.nbytes)
    for how, beyond in sizes.items():
        yield f"Beyond what was measured: {', '.join(map(spell_size, dict.fromkeys(beyond)))}, {how}."


def links_table(own: Simulated, *, everything: bool) -> tuple[Table, str]:
    """Return the links of a run, the fullest first, and a note on those that are not shown.

    Links that are alike in all figures stand in one line, unless *everything* is wanted.
    """
    links = own.run.links
    busiest, groups = links.busiest, alike_links(links, everything=everything)
    shown = groups[: None if everything else TOP]
    result = table(
        ("link", "", "", "used", "saturated", "bytes", "bandwidth"),
        [link_cells(alike) for alike in shown],
        text_columns=3,
    )
    notes = []
    if left := len(busiest) - sum(map(len, shown)):
        notes.append(f"{left} more links carry something: --all-links")
    if idle := len(links) - len(busiest):
        notes.append(f"nothing crosses {idle} of {len(links)} links")
    if links.saturated_ps is None:
        notes.append("how long links were full is not recorded by makespan, nor of very many messages")
    return result, "; ".join(notes)


def alike_links(links: Links, *, everything: bool = False) -> list[list[LinkUse]]:
    """Return the links that were used, the fullest first, those that are alike in all figures together.

    With *everything* each stands by itself.
    """
    groups: dict[object, list[LinkUse]] = {}
    for link in links.busiest:
        use = links[link]
        alike = use.name if everything else (use.nbytes, use.bandwidth, use.saturated_seconds)
        groups.setdefault(alike, []).append(use)
    return list(groups.values())


def link_cells(alike: Sequence[LinkUse]) -> list[str]:
    """Return the cells of links that are alike: names, number, bar, use, saturation, bytes, bandwidth."""
    use, full = alike[0], alike[0].saturated_seconds
    return [
        _names(alike),
        "" if len(alike) == 1 else f"×{len(alike)}",
        _bar(use.utilisation),
        percent(use.utilisation),
        "–" if full is None else seconds(full),
        spell_size(use.nbytes),
        _bandwidth(use.bandwidth),
    ]


def _names(alike: Sequence[LinkUse]) -> str:
    """Return the names of links, runs of numbers drawn together, and not more than fit."""
    named = spell_names([use.name for use in alike]).split(", ")
    shown = named[:1]
    for name in named[1:]:
        if len(", ".join([*shown, name])) > _NAMES:
            return f"{', '.join(shown)}, …"
        shown.append(name)
    return ", ".join(shown)


def _bar(part: float) -> str:
    """Return a bar of *part* of its full length, to an eighth of a character."""
    eighths = round(min(part, 1.0) * _BAR * 8)
    whole, rest = divmod(eighths, 8)
    return f"{'█' * whole}{_EIGHTHS[rest].strip()}".ljust(_BAR)


def _bandwidth(bandwidth: float) -> str:
    from sim.units import format_bandwidth

    return format_bandwidth(round(bandwidth))


def title(request: SimulationRequest, results: Sequence[Simulated]) -> str:
    """Return what was simulated where, in a line."""
    run, topology = results[0].run, request.topology
    by = f" by {results[0].name}" if len(request.entries) == 1 else ""
    size = f" of {spell_size(run.nbytes)}" if len(request.sizes) == 1 else ""
    ranks = counted(run.num_ranks, "rank")
    placed = {"packed": "", "round_robin": ", round robin"}
    where = placed[request.placement] if isinstance(request.placement, str) else ", placed by a list"
    return f"{run.collective.replace('_', '-').capitalize()}{size}{by} on {topology.name}, {ranks}{where}"


def assumptions(request: SimulationRequest) -> str:
    """Return what the figures assume."""
    floor = "Floor: what no algorithm goes below on these links."
    if request.timed_by != "links":
        return f"Closed form: {model_of(request)}. {floor}"
    added = [request.assumed.software.in_words()]
    if request.assumed.software.reduction_bandwidth is None:
        added.append("reducing costs no time")
    added += map(str, request.conditions)
    if any(entry.name == "nvls" for entry in request.entries):
        added.append("nvls is a closed form")
    return f"Simulated: {MODELS['links']}; {'; '.join(added)}. {floor}"
