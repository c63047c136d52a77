"""Results of networks: those that ship, and one with its links and narrow places; and the links of a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from sim import load_network, preset_names
from sim.topology import Topology
from sim.topology.description import NetworkDescription
from sim.units import format_bandwidth, format_time
from testbed.output.table import counted, grouped, percent, seconds, spell_size
from testbed.plots.drawn_network import drawn_network, sketch
from testbed.plots.network_layout import spell_names
from testbed.result import Facts, Grid, Part, Plot, Result, Rows, Text, asked, found, quiet
from testbed.studies import network_survey

if TYPE_CHECKING:
    from collectives.timing.links import Links, LinkUse

MODEL = (
    "links and routes as the network describes them; bandwidths are those for payload, after the "
    "efficiency that the file states"
)
NETWORKS = (
    *asked("name", head="network"),
    *found("kind", head="kind"),
    *found("description", head="what it is"),
    *found("source", of=lambda own: own.source.strip()),
)
LINKS = (
    *asked("ends", head="links, one way"),
    *found("count", head="count"),
    *found("bandwidth", head="bandwidth", spell=format_bandwidth),
    *found("latency_ps", head="latency", spell=format_time),
    *found("sharing"),
)


def listing_result() -> Result:
    """Return the networks that ship, with a row for each."""
    presets = [load_network(name) for name in preset_names()]
    listed = Rows.of(NETWORKS, presets)
    return Result(
        question="Which networks ship?",
        answer=f"{counted(len(presets), 'network')} ship, from {presets[0].name} to {presets[-1].name}.",
        method="closed form",
        model=MODEL,
        rows=listed,
        tables={"networks": listed},
        parts=[
            listed.grid(text_columns=3),
            quiet("testbed network NAME shows one of them; a path shows a file of yours.", gap=False),
        ],
    )


def network_result(description: NetworkDescription, topology: Topology) -> Result:
    """Return what is known of a network, with a row for all links that are alike."""
    facts = _facts(description, topology)
    links = Rows(LINKS, facts["links"])
    return Result(
        question=f"How are {topology.num_ranks} ranks of {topology.name} joined?",
        answer=_answer(facts),
        method="closed form",
        model=MODEL,
        topologies={topology.name: topology.digest()},
        rows=links,
        tables={"links": links},
        asked=("network", "kind", "description", "source", "ranks"),
        body={name: value for name, value in facts.items() if name != "links"},
        parts=[
            Plot(
                partial(drawn_network, topology),
                "The network",
                description.description and f"{description.description}.",
                alone=f"{topology.name}, {topology.num_ranks} ranks",
            ),
            *_parts(topology, facts),
        ],
    )


def _facts(description: NetworkDescription, topology: Topology) -> dict[str, Any]:
    """Return what is known of the network, as JSON types."""
    switches = network_survey.fabric(topology)
    pairs = network_survey.pairs_of(topology)
    worst = network_survey.oversubscription(topology)
    return {
        "network": topology.name,
        "kind": description.kind,
        "description": description.description,
        "source": description.source.strip(),
        "ranks": topology.num_ranks,
        "ranks_per_node": topology.ranks_per_node,
        "nodes": -(-topology.num_ranks // topology.ranks_per_node),
        "num_links": topology.num_links,
        "in_network_reduction": topology.in_network_reduction,
        "cache": None if topology.cache is None else topology.cache._asdict(),
        "hardware": None if topology.hardware is None else asdict(topology.hardware),
        "links": [asdict(own) for own in network_survey.link_classes(topology)],
        "diameter": asdict(network_survey.diameter(topology, pairs)),
        "bisection": asdict(network_survey.bisection(topology, pairs)),
        "oversubscription": None if worst is None else asdict(worst),
        "fabric": None if switches is None else asdict(switches),
        "digest": topology.digest(),
    }


def _answer(facts: dict[str, Any]) -> str:
    """Return in a sentence how far and how narrow it is."""
    far, half = facts["diameter"], facts["bisection"]["bandwidth"]
    apart = f"at most {counted(far['hops'], 'link')} and {format_time(far['latency_ps'])} apart"
    narrow = "" if half is None else f", and one half sends the other {format_bandwidth(half)} at most"
    return f"Its {facts['ranks']} ranks are {apart}{narrow}."


def _parts(topology: Topology, facts: dict[str, Any]) -> Iterator[Part]:
    what = [facts["description"]] if facts["description"] else []
    yield Text(what, title=f"{facts['network']}, {facts['ranks']} ranks")
    yield Rows(LINKS, facts["links"]).grid()
    yield Facts(_lines(facts) | _sharing(facts), width=16)
    yield Text([sketch(topology)])
    if facts["source"]:
        yield Text([facts["source"]])


def _sharing(facts: dict[str, Any]) -> dict[str, str]:
    """Return which parts of links flows get, for links of which they do not always get all."""
    return {
        f"sharing, {own['ends']}": "; ".join(
            f"{way} {', '.join(f'{part:g}' for part in own['sharing'][name])}"
            for way, name in (("one way", "one_way"), ("both ways", "both_ways"))
        )
        + " of the bandwidth, for 1, 2, … flows"
        for own in facts["links"]
        if own["sharing"]
    }


def _fabric(switches: dict[str, Any] | None) -> dict[str, str]:
    """Return in words how the switches of a cluster are arranged, by name."""
    if switches is None:
        return {}
    nodes, cards, pods = switches["nodes_per_leaf"], switches["cards_per_leaf"], switches["pods"]
    core = switches["core_oversubscription"]
    above = "one pod" if core is None else f"{pods} pods, oversubscribed {core:.3g} : 1 to the cores"
    return {
        "rails": f"{switches['rails']}; the {nodes} nodes of a scalable unit have a leaf for each",
        "leaves": f"{switches['leaves']}, {cards} cards on each, "
        f"oversubscribed {switches['oversubscription']:.3g} : 1",
        "spines": f"{above}; {switches['routing']} over equal paths",
    }


def _cached(cache: dict[str, Any] | None) -> dict[str, str]:
    """Return in words which buffers move faster through the memory of a host, by name."""
    if cache is None:
        return {}
    size = spell_size(cache["nbytes"])
    faster = f"{cache['speedup']:.3g} times as fast, copies {cache['copy_speedup']:.3g} times"
    return {"caches": f"buffers of up to {size}, of all ranks together, move {faster}"}


def _lines(facts: dict[str, Any]) -> dict[str, str]:
    """Return the facts in words, by name."""
    far, half, worst = facts["diameter"], facts["bisection"], facts["oversubscription"]
    flow = "" if half["bandwidth"] is None else f"{format_bandwidth(half['bandwidth'])}, one way: "
    return {
        "kind": facts["kind"],
        "nodes": f"{facts['nodes']}, ranks in each: {facts['ranks_per_node']}",
        "diameter": f"{far['hops']} links, {format_time(far['latency_ps'])} ({far['method']})",
        "bisection": f"{flow}{half['method']}",
        "oversubscription": "no group of ranks has links of its own"
        if worst is None
        else f"{worst['ratio']:.3g} : 1, what the ranks of a {worst['group']} send over what can leave it",
        "switches reduce": "yes" if facts["in_network_reduction"] else "no",
        **_fabric(facts["fabric"]),
        **_cached(facts["cache"]),
        "digest": facts["digest"],
    }


TOP = 20
"""Links that are shown unless all are asked for."""

_NAMES = 36
_BAR = 12
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def links_table(links: Links, *, everything: bool, gap: bool = True) -> tuple[Grid, str]:
    """Return the links of a run, the fullest first, and a note on those that are not shown.

    Links that are alike in all figures stand in one line, unless *everything* is wanted.
    """
    busiest, groups = links.busiest, alike_links(links, everything=everything)
    shown = groups[: None if everything else TOP]
    columns = ("link", "", "", "used", "saturated", "bytes", "bandwidth")
    result = Grid(columns, [link_cells(alike) for alike in shown], text_columns=3, gap=gap)
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
    uses = (links[link] for link in links.busiest)
    if everything:
        return [[use] for use in uses]
    return list(grouped(uses, lambda use: (use.nbytes, use.bandwidth, use.saturated_seconds)).values())


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
        bandwidth(use.bandwidth),
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


def bandwidth(bytes_per_second: float) -> str:
    """Return a bandwidth in words."""
    return format_bandwidth(round(bytes_per_second))
