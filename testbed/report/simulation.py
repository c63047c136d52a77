"""Result of simulated collectives: one in full, several side by side, and their links."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby

from collectives.catalogue.admission import Evidence
from collectives.timing import Software
from collectives.timing.assumptions import AUTO
from collectives.timing.closed_forms import is_known_of_the_library
from sim.topology import Topology
from testbed.options import evidence
from testbed.output.table import counted, percent, seconds, spell_size
from testbed.plots.drawn_network import drawn_network
from testbed.plots.figure import NoFigure, curves, over_sizes
from testbed.plots.picture import Figure
from testbed.report.network import bandwidth, links_table
from testbed.result import Facts, Grid, Part, Plot, Result, Rows, Text, asked, found, found_by, quiet
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

COLUMNS = (
    *asked("collective", "ranks", "nbytes", "algorithm", "conditions"),
    *found("chosen", "seconds", "low", "high", "time_ps", "algbw", "busbw", "floor_seconds", "above_floor"),
    *found_by("engine", "model", "transport_model", "interval_from"),
    *found("bottleneck", "beyond", "thread_blocks", "links"),
)


def simulation_result(request: SimulationRequest, results: Sequence[Simulated], *, all_links: bool) -> Result:
    """Return *results*: one run as facts, several as a table; then links, if wanted, and what is assumed."""
    topology, placement = request.topology, request.placement
    where = [(results[0].run.num_ranks, topology.ranks_per_node)]
    programs = [own.simulated_as for own in request.entries]
    proved = evidence.evidence_for(programs, where, request.collective)
    return Result(
        question=title(request, results),
        answer=answer(results),
        method="simulated" if request.timed_by == "links" else "closed form",
        model=model_of(request),
        seed=next((one.seed for one in request.conditions if hasattr(one, "seed")), None),
        topologies={topology.name: topology.digest()},
        assumptions=request.assumptions,
        rows=Rows(COLUMNS, [own.as_json(with_links=request.links) for own in results]),
        asked=("placement",),
        body={
            "placement": placement if isinstance(placement, str) else list(placement),
            **evidence.as_json(proved),
        },
        parts=list(_parts(request, results, proved, all_links=all_links)),
    )


def _parts(
    request: SimulationRequest, results: Sequence[Simulated], proved: Sequence[Evidence], *, all_links: bool
) -> Iterator[Part]:
    yield from _plots(request, results)
    yield Text(title=title(request, results))
    alone = len(request.entries) * len(request.sizes) == 1
    if alone:
        yield Facts(facts_of(results[0]))
    else:
        yield comparison(results)
        yield Text(list(carried_on(results)), gap=False)
    for own in results if request.links else ():
        heading = "" if alone else f"{own.name}, {spell_size(own.run.nbytes)}"
        if not own.has_links:
            yield Text([f"Links: {own.run.no_links}."], heading)
            continue
        if heading:
            yield Text(title=heading)
        shown, note = links_table(own.run.links, everything=all_links, gap=not heading)
        yield shown
        if note:
            yield quiet(f"{note[0].upper()}{note[1:]}.", gap=False)
    yield quiet(assumptions(request), *(f"{one}." for one in proved))


def answer(results: Sequence[Simulated]) -> str:
    """Return in a sentence what *results* come to."""
    best = min(results, key=lambda own: own.run.seconds)
    if len(results) == 1:
        run = best.run
        limit = ""
        if link := best.bottleneck:
            limit = f"; the fullest link, {link.name}, is {percent(link.utilisation)} full"
        above = f", {best.above_floor:.2f} times the floor" if best.above_floor is not None else ""
        return f"It takes {seconds(run.seconds)}{above}{limit}."
    largest = max(own.run.nbytes for own in results)
    own = sorted((own for own in results if own.run.nbytes == largest), key=lambda own: own.run.seconds)
    rest = f"; {own[-1].name}, the slowest, {seconds(own[-1].run.seconds)}" if len(own) > 1 else ""
    best = own[0]
    name = f"auto ({best.run.algorithm})" if best.name == AUTO else best.name
    return f"At {spell_size(largest)} {name} is fastest, with {seconds(best.run.seconds)}{rest}."


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
    if own.interval is not None:
        facts["interval"] = f"{own.interval}, nine of ten measurements ({own.interval.source})"
    if run.beyond:
        facts["beyond"] = run.beyond
    if run.thread_blocks:
        facts["of the file"] = run.thread_blocks
    facts["algbw"] = bandwidth(run.algbw)
    facts["busbw"] = bandwidth(run.busbw)
    facts["engine"] = run.engine
    if fullest := own.bottleneck:
        used = f"{fullest.name}, {percent(fullest.utilisation)} of {bandwidth(fullest.bandwidth)}"
        full = fullest.saturated_seconds
        facts["bottleneck"] = used if full is None else f"{used}, saturated for {seconds(full)}"
    return facts


def comparison(results: Sequence[Simulated]) -> Grid:
    """Return a line for each run; of each size the fastest is bold."""
    least: dict[int, int] = {}
    for own in results:
        least[own.run.nbytes] = min(own.run.time_ps, least.get(own.run.nbytes, own.run.time_ps))
    heads = {id(next(own)) for _, own in groupby(results, lambda own: own.run.nbytes)}
    columns: dict[str, Callable[[Simulated], str]] = {
        "size\n": lambda own: spell_size(own.run.nbytes) if id(own) in heads else "",
        "algorithm\n": _with_choice,
        "bottleneck\n": lambda own: own.bottleneck.name if own.bottleneck else "",
        "used\n": lambda own: percent(own.bottleneck.utilisation) if own.bottleneck else "–",
        "time\n": lambda own: seconds(own.run.seconds),
        "time /\nfloor": lambda own: "–" if own.above_floor is None else f"{own.above_floor:.2f}",
        "algbw\n(GB/s)": lambda own: f"{own.run.algbw / 1e9:.2f}",
        "busbw\n(GB/s)": lambda own: f"{own.run.busbw / 1e9:.2f}",
        "engine\n": lambda own: own.run.engine,
    }
    if len(least) == 1:
        del columns["size\n"]
    fastest = (number for number, own in enumerate(results) if own.run.time_ps == least[own.run.nbytes])
    bold = frozenset(fastest if len(results) > len(least) else ())
    return Grid.of(results, columns, text_columns=2 + (len(least) > 1), bold=bold)


def _with_choice(own: Simulated) -> str:
    """Return how the algorithm is called, of ``auto`` with what was chosen."""
    is_choice = own.name.partition(":")[0] == "auto" and own.run.algorithm != own.name
    return f"auto: {own.run.algorithm}" if is_choice else own.name


def carried_on(results: Sequence[Simulated]) -> Iterator[str]:
    """Yield which sizes go beyond what was measured, and what counts of files, a line for each."""
    sizes: dict[str, list[int]] = {}
    for own in results:
        if own.run.beyond:
            sizes.setdefault(own.run.beyond, []).append(own.run.nbytes)
    for how, beyond in sizes.items():
        yield f"Beyond what was measured: {', '.join(map(spell_size, dict.fromkeys(beyond)))}, {how}."
    for name, said in dict.fromkeys((own.name, own.run.thread_blocks) for own in results):
        if said:
            yield f"Of {name}: {said}."


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
    software = request.assumed.software.of_all(entry.simulated_as for entry in request.entries)
    if request.timed_by != "links":
        return f"Closed form: {model_of(request)}{_launches(request, software)}. {floor}"
    added = [software.in_words()]
    if request.assumed.software.reduction_bandwidth is None:
        added.append("reducing costs no time")
    added += map(str, request.conditions)
    if any(entry.name == "nvls" for entry in request.entries):
        added.append("nvls is a closed form")
    return f"Simulated: {MODELS['links']}; {'; '.join(added)}. {floor}"


def _launches(request: SimulationRequest, software: Software) -> str:
    """Return what launches take beside the library's own times, of which they are a part."""
    if request.timed_by != "library":
        return ""
    if launched := software.launches_in_words():
        return f"; a program of ours takes {launched}"
    launch = request.assumed.software.step_overhead
    known = is_known_of_the_library(request.collective, request.topology)
    return "" if known or not launch else f"; a program that stands for NCCL's is launched once, in {launch}"


def _plots(request: SimulationRequest, results: Sequence[Simulated]) -> Iterator[Plot]:
    """Yield time and bandwidth over sizes, or of one size the load of the links under the fastest."""
    if len({own.run.nbytes for own in results}) > 1:
        over = partial(
            over_sizes,
            curves((own.name, own.run.nbytes, own.run.seconds) for own in results),
            [(own.run.nbytes, own.run.floor_seconds) for own in results],
            busbw=curves((own.name, own.run.nbytes, own.run.busbw) for own in results if own.run.seconds),
        )
        yield Plot(over, "Time and bus bandwidth", "", title(request, results), assumed=assumptions(request))
        return
    own = min(results, key=lambda own: own.run.seconds)
    fullest = own.bottleneck
    what = "" if fullest is None else f"Fullest: {fullest.name}, {percent(fullest.utilisation)}. "
    note = (
        f"{what}The half of a line at a vertex is what leaves it. Utilisation: bytes over what the link "
        f"could have carried in {seconds(own.run.seconds)}."
    )
    describe = partial(_load, own, request.topology)
    alone = title(request, [own]) if len(results) == 1 else f"{title(request, [own])}, by {own.name}"
    yield Plot(describe, f"Load of the links under {own.name}", note, alone)


def _load(own: Simulated, topology: Topology) -> Figure:
    if not own.has_links:
        said = "of one size the load of links is drawn, of which a closed form says nothing"
        raise NoFigure(f"{said}: {own.name}")
    return drawn_network(topology, own.run.links)
