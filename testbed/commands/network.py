"""``testbed network``: the links of a network, the distance of its ranks, and its bisection bandwidth."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.errors import reporting_errors
from testbed.options.arguments import MAX_RANKS
from testbed.output.folder import document
from testbed.output.table import print_json, spell_size, stdout_console, table

if TYPE_CHECKING:
    from rich.console import Console

    from sim.topology import Topology
    from sim.topology.description import NetworkDescription

EXAMPLES = """\b
Examples:
  testbed network
  testbed network dgx-h100 --ranks 64
  testbed network my_cluster.toml --plot my_cluster.svg
"""

DEFAULT_RANKS = 64
MODEL = (
    "links and routes as the network describes them; bandwidths are those for payload, after the "
    "efficiency that the file states"
)


@reporting_errors
def network(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME|FILE]", help="A preset or a network file; without, all presets are listed."
        ),
    ] = None,
    ranks: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=MAX_RANKS,
            help="How many ranks, where the file does not say; by default 64, or two nodes if that is more.",
        ),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the network to this .png or .svg as well.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Show a network: its links, its diameter, its bisection bandwidth, and a sketch.

    Without a name, the networks that ship are listed.
    """
    from sim import load_network
    from testbed.errors import UsageError

    if name is None:
        if ranks is not None or plot is not None:
            raise UsageError("--ranks and --plot need a network: its name, or the path of a .toml file")
        _list(as_json)
        return
    if plot is not None:
        from testbed.output.figure import check_plot

        check_plot(plot)
    description = load_network(name)
    topology = description.topology(default_ranks(description, ranks))
    found = _facts(description, topology)
    if plot is not None:
        from testbed.report.plots.network_plot import plot_network

        what = f"{description.description}. " if description.description else ""
        plot_network(topology, plot, note=f"{what}Bandwidths are those for payload.")
    if as_json:
        digest = {topology.name: topology.digest()}
        print_json(document(method="closed form", model=MODEL, topologies=digest, **found))
        return
    console = stdout_console()
    _print(console, topology, found)
    if plot is not None:
        console.print(f"\nDrawn in {plot}.", markup=False, soft_wrap=True)


def default_ranks(description: NetworkDescription, ranks: int | None) -> int | None:
    """Return *ranks*, or where the file does not say how many, 64, or two nodes if that is more."""
    if ranks is not None or description.num_ranks is not None:
        return ranks
    return max(DEFAULT_RANKS, 2 * getattr(description.fields, "ranks_per_node", 1))


def _list(as_json: bool) -> None:
    """Print the presets."""
    from sim import load_network, preset_names

    presets = [load_network(name) for name in preset_names()]
    if as_json:
        listed = [
            {"name": own.name, "kind": own.kind, "description": own.description, "source": own.source.strip()}
            for own in presets
        ]
        print_json(document(method="closed form", model=MODEL, networks=listed))
        return
    console = stdout_console()
    rows = [(own.name, own.kind, own.description) for own in presets]
    console.print(table(("network", "kind", "what it is"), rows, text_columns=3))
    console.print("testbed network NAME shows one of them; a path shows a file of yours.", style="dim")


def _facts(description: NetworkDescription, topology: Topology) -> dict[str, Any]:
    """Return what is known of the network, as JSON types."""
    from testbed.studies.network_survey import (
        bisection,
        diameter,
        fabric,
        link_classes,
        oversubscription,
        pairs_of,
    )

    switches = fabric(topology)
    pairs = pairs_of(topology)
    worst = oversubscription(topology)
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
        "links": [asdict(own) for own in link_classes(topology)],
        "diameter": asdict(diameter(topology, pairs)),
        "bisection": asdict(bisection(topology, pairs)),
        "oversubscription": None if worst is None else asdict(worst),
        "fabric": None if switches is None else asdict(switches),
        "digest": topology.digest(),
    }


def _print(console: Console, topology: Topology, found: dict[str, Any]) -> None:
    from sim.units import format_bandwidth, format_time
    from testbed.report.plots.network_sketch import sketch

    console.print(f"{found['network']}, {found['ranks']} ranks", style="bold", markup=False)
    if found["description"]:
        console.print(found["description"], markup=False, soft_wrap=True)
    console.print()
    rows = [
        (own["ends"], str(own["count"]), format_bandwidth(own["bandwidth"]), format_time(own["latency_ps"]))
        for own in found["links"]
    ]
    console.print(table(("links, one way", "count", "bandwidth", "latency"), rows))
    console.print()
    for fact, text in (_lines(found) | _sharing(found)).items():
        console.print(f"{fact:16}  {text}", markup=False, soft_wrap=True)
    console.print(f"\n{sketch(topology)}", markup=False, soft_wrap=True)
    if found["source"]:
        console.print(f"\n{found['source']}", style="dim", markup=False, soft_wrap=True)


def _sharing(found: dict[str, Any]) -> dict[str, str]:
    """Return which parts of links flows get, for links of which they do not always get all."""
    return {
        f"sharing, {own['ends']}": "; ".join(
            f"{way} {', '.join(f'{part:g}' for part in own['sharing'][name])}"
            for way, name in (("one way", "one_way"), ("both ways", "both_ways"))
        )
        + " of the bandwidth, for 1, 2, … flows"
        for own in found["links"]
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


def _lines(found: dict[str, Any]) -> dict[str, str]:
    """Return the facts in words, by name."""
    from sim.units import format_bandwidth, format_time

    far, half, worst = found["diameter"], found["bisection"], found["oversubscription"]
    flow = "" if half["bandwidth"] is None else f"{format_bandwidth(half['bandwidth'])}, one way: "
    return {
        "kind": found["kind"],
        "nodes": f"{found['nodes']}, ranks in each: {found['ranks_per_node']}",
        "diameter": f"{far['hops']} links, {format_time(far['latency_ps'])} ({far['method']})",
        "bisection": f"{flow}{half['method']}",
        "oversubscription": "no group of ranks has links of its own"
        if worst is None
        else f"{worst['ratio']:.3g} : 1, what the ranks of a {worst['group']} send over what can leave it",
        "switches reduce": "yes" if found["in_network_reduction"] else "no",
        **_fabric(found["fabric"]),
        **_cached(found["cache"]),
        "digest": found["digest"],
    }
