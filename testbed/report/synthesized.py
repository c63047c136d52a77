"""Result of a synthesis: what was made, what ships, the optimum, and the reason that nothing is faster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from collectives.synthesis import Synthesis
from sim.topology import Topology
from testbed.output.table import counted, percent, seconds, spans, spell_size
from testbed.result import Facts, Result, Rows, Text, asked, found, quiet

MODEL = (
    "every message takes the network's own route and shares its links fairly (max-min); the optimum is that "
    "of programs that do not reduce in switches"
)
COLUMNS = (*asked("kind"), *found("algorithm", "seconds", "algbw"))
_NAMED_LINKS = 4
_REASONS = {
    "routes": "no program whose messages take this network's routes is faster",
    "trees": "no program that reduces on trees and sends out on trees is faster",
    "floor": "no program at all is faster (latency and cuts, docs/modelling.md)",
}


def synthesis_result(made: Synthesis, topology: Topology, output: Path | None) -> Result:
    """Return what was made for *topology*, beside what ships and what no program can go below."""
    title, facts = heading(made, topology), dict(_facts(made, topology))
    as_it_ships = output is not None and made.shipped_is_faster
    return Result(
        question=title,
        answer=answer(made),
        method=["proved", "simulated"],
        model=MODEL,
        topologies={topology.name: topology.digest()},
        rows=Rows(COLUMNS, list(_rows(made))),
        asked=("collective", "ranks", "nbytes"),
        body=as_body(made, topology) | ({} if output is None else {"output": str(output)}),
        files={} if output is None else {"Program": output},
        parts=[
            Text(title=title),
            Facts(facts, width=12),
            quiet(f"Proved for {topology.num_ranks} ranks. Simulated: {MODEL}."),
            *([Text([f"What is written is {made.best}, as it ships."], gap=False)] if as_it_ships else []),
        ],
    )


def _rows(made: Synthesis) -> Iterator[dict[str, Any]]:
    """Yield a row for each time: of what was made, of what ships, and what none goes below."""
    times = {
        "synthesized": (str(made.algorithm), made.seconds),
        "best_shipped": (str(made.shipped), made.shipped_seconds),
        "optimum": (None, made.optimum_seconds),
        "cut": (None, float(made.cut.seconds_per_byte * made.nbytes)),
    }
    for kind, (algorithm, time) in times.items():
        if time is not None:
            yield {"kind": kind, "algorithm": algorithm, "seconds": time, "algbw": made.nbytes / time}


def as_body(made: Synthesis, topology: Topology) -> dict[str, Any]:
    """Return the figures as JSON types: in seconds, bytes and bytes per second."""
    cut = made.cut
    return {
        "collective": made.collective,
        "ranks": topology.num_ranks,
        "nbytes": made.nbytes,
        "algorithm": str(made.best),
        "seconds": made.best_seconds,
        "algbw": made.nbytes / made.best_seconds,
        "optimum_seconds": made.optimum_seconds,
        "optimum_by": made.by,
        "fraction_of_optimum": made.fraction_of_optimum,
        "synthesized_seconds": made.seconds,
        "best_shipped": None if made.shipped is None else str(made.shipped),
        "best_shipped_seconds": made.shipped_seconds,
        "cut": {
            "ranks": list(cut.ranks),
            "links": [topology.link_name(link) for link in cut.links],
            "direction": "out" if cut.outward else "in",
            "seconds": float(cut.seconds_per_byte * made.nbytes),
        },
        "prices": {topology.link_name(link): price for link, price in made.prices.items()},
        "trees_seconds": made.packed_seconds,
        "trees": made.num_trees,
        "few_trees": {str(trees): fraction for trees, fraction in made.few_trees.items()},
        "height": made.height,
        "chunks": made.num_chunks,
        "steps": made.num_steps,
        "symmetry": made.order,
        "search_seconds": made.search_seconds,
    }


def heading(made: Synthesis, topology: Topology) -> str:
    """Return what was made, and how good it is, in a line."""
    best = "what ships is as fast" if made.shipped_is_faster else "made for this network"
    ranks = counted(topology.num_ranks, "rank")
    what = f"{made.collective} of {spell_size(made.nbytes)}, {ranks} of {topology.name}"
    return (
        f"{what}: {seconds(made.best_seconds)}, {percent(made.fraction_of_optimum)} of the optimum ({best})"
    )


def _facts(made: Synthesis, topology: Topology) -> Iterator[tuple[str, str]]:
    """Yield the times by name, each with what it is the time of."""
    yield "synthesized", _figures(made.seconds, made, _shape(made))
    if made.shipped_seconds is not None:
        ratio = made.shipped_seconds / made.seconds
        compared = f"{ratio:.2f} times as long" if ratio >= 1 else f"{1 / ratio:.2f} times as fast: take it"
        yield "best shipped", _figures(made.shipped_seconds, made, f"{made.shipped}, {compared}")
    yield "optimum", _figures(made.optimum_seconds, made, _reason(made, topology))
    if made.few_trees:
        parts = ", ".join(f"{trees}: {percent(own)}" for trees, own in made.few_trees.items())
        yield "few trees", f"of the optimum at most, by trees of each root: {parts}"
    if made.by == "routes":
        cut_seconds = float(made.cut.seconds_per_byte * made.nbytes)
        yield "cut", _figures(cut_seconds, made, _of_cut(made, topology))


def answer(made: Synthesis) -> str:
    """Return which program to take, in a sentence."""
    if made.shipped_is_faster:
        return (
            f"{made.shipped}, which ships, takes {seconds(made.best_seconds)}: what was made is not faster."
        )
    taken = f"The program made for this network takes {seconds(made.seconds)}"
    if made.shipped_seconds is None:
        return f"{taken}."
    ratio = made.shipped_seconds / made.seconds
    return f"{taken}, the best that ships, {made.shipped}, {ratio:.2f} times as long."


def _figures(value: float, made: Synthesis, what: str) -> str:
    return f"{seconds(value):>8}  {made.nbytes / value / 1e9:7.2f} GB/s  {what}"


def _shape(made: Synthesis) -> str:
    exchanges = made.collective == "all_to_all"
    one = "path" if exchanges else "tree"
    trees = f"1 {one}" if made.num_trees == 1 else f"{made.num_trees:.3g} {one}s"
    every = " of each root" if made.collective in ("all_gather", "reduce_scatter") else ""
    every = " of each pair" if exchanges else every
    return (
        f"{trees}{every}, at most {counted(made.height, 'message')} deep; "
        f"{counted(made.num_chunks, 'chunk')}, {counted(made.num_steps, 'step')}"
    )


def _reason(made: Synthesis, topology: Topology) -> str:
    if made.by == "cut":
        return _of_cut(made, topology)
    return _REASONS[made.by] + (_of_prices(made, topology) if made.by in ("routes", "trees") else "")


def _of_prices(made: Synthesis, topology: Topology) -> str:
    """Return the prices that prove it in words: the dearest links, and their parts of all prices."""
    dearest = sorted(made.prices.items(), key=lambda own: -own[1])
    named = ", ".join(f"{topology.link_name(link)} {price:.0%}" for link, price in dearest[:_NAMED_LINKS])
    more = f", and {len(dearest) - _NAMED_LINKS} others" if len(dearest) > _NAMED_LINKS else ""
    return f": by prices of links ({named}{more})"


def _of_cut(made: Synthesis, topology: Topology) -> str:
    """Return the cut in words: who is on its one side, and what links must carry."""
    cut = made.cut
    rate = sum(int(topology.link_bandwidth[link]) for link in cut.links)
    share = cut.seconds_per_byte * rate
    named = ", ".join(topology.link_name(link) for link in cut.links[:_NAMED_LINKS])
    more = ", …" if len(cut.links) > _NAMED_LINKS else ""
    way = "out of" if cut.outward else "into"
    who = f"{'rank' if len(cut.ranks) == 1 else 'ranks'} {', '.join(spans(cut.ranks))}"
    amount = "the whole buffer" if share == 1 else f"{share} {'times' if share > 1 else 'of'} the buffer"
    return (
        f"{amount} must go {way} {who} over {counted(len(cut.links), 'link')} of "
        f"{rate / 1e9:.4g} GB/s together ({named}{more})"
    )
