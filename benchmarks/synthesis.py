"""Nearness of synthesised programs to the optimum: on random graphs, and on all presets.

    python -m benchmarks.synthesis [graphs|presets] [--collective all_gather] [--graphs 200] [--first 0]
                                   [--workers 2] [--nbytes 1G]

A graph has 4 to 32 ranks on up to a quarter as many switches, cables of 10 to 200 Gb/s and 1 to 5 µs between
switches and between ranks, and up to two links that fail.  Every program is proved.  One line for each
network, then what part comes within 3 % and the worst: made, and the better of it and what ships.
"""

from __future__ import annotations

import argparse
import random
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from typing import NamedTuple

from collectives import verify
from collectives.synthesis import COLLECTIVES, synthesize
from sim import Topology, TopologyError, load_network, preset_names
from sim.topology.kinds.graph import LinkSpec
from sim.units import parse_size

GIGABITS = (10, 25, 50, 100, 200)
MICROSECONDS = (1, 2, 5)
WITHIN = 0.97


class Figures(NamedTuple):
    """What came out for one network: parts of the optimum, the search in seconds."""

    network: str
    ranks: int
    made: float
    best: float
    shipped: float
    search_seconds: float
    what: str


def random_graph(seed: int) -> Topology:
    """Return the graph number *seed*."""
    choose = random.Random(seed)
    num_ranks = choose.randint(4, 32)
    num_switches = choose.randint(1, max(1, num_ranks // 4))
    ranks = [f"r{number}" for number in range(num_ranks)]
    switches = [f"s{number}" for number in range(num_switches)]
    links: list[LinkSpec] = []

    def cable(one: str, other: str) -> None:
        rate = choose.choice(GIGABITS) * 10**9 // 8
        latency = choose.choice(MICROSECONDS) * 10**6
        links.extend(LinkSpec(*ends, rate, latency) for ends in ((one, other), (other, one)))

    for rank in ranks:
        cable(rank, choose.choice(switches))
    order = choose.sample(switches, num_switches)
    for number in range(1, num_switches):
        cable(order[number], order[choose.randrange(number)])
    for _ in range(choose.randint(0, num_switches)):
        one, other = choose.choice(switches), choose.choice(switches)
        if one != other:
            cable(one, other)
    for _ in range(choose.randint(0, num_ranks)):
        cable(*choose.sample(ranks, 2))
    topology = Topology.graph(ranks=ranks, switches=switches, links=links, name=f"graph {seed}")
    for _ in range(choose.randint(0, 2)):
        try:
            topology = topology.without_links([choose.randrange(topology.num_links)])
        except TopologyError:  # it would part the ranks
            continue
    return topology


def figures(topology: Topology, collective: str, nbytes: int) -> Figures:
    """Make a program for *topology*, prove it, and return how near it comes."""
    made = synthesize(topology, collective, nbytes)
    verify(made.algorithm, topology.num_ranks)
    what = (
        f"{made.num_trees:.2f} trees, {made.height} deep, {made.num_chunks} chunks, {made.num_steps} steps; "
        f"{made.shipped}; bound: {made.by}"
    )
    return Figures(
        topology.name,
        topology.num_ranks,
        made.optimum_seconds / made.seconds,
        made.fraction_of_optimum,
        0.0 if made.shipped_seconds is None else made.optimum_seconds / made.shipped_seconds,
        made.search_seconds,
        what,
    )


def of_graph(seed: int, collective: str, nbytes: int) -> Figures:
    """Return the figures of a random graph."""
    return figures(random_graph(seed), collective, nbytes)


def of_preset(name: str, collective: str, nbytes: int) -> Figures:
    """Return the figures of two nodes of a preset, 16 ranks where a node is one, 32 where it is many."""
    network = load_network(name)
    per_node = network.topology(16).ranks_per_node
    ranks = 2 * per_node if 1 < per_node <= 8 else 16 if per_node == 1 else 32
    return figures(network.topology(ranks), collective, nbytes)


def main() -> None:
    """Print a line for each network, then the share that comes near, and the worst."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=["graphs", "presets"], nargs="?", default="graphs")
    parser.add_argument("--collective", choices=COLLECTIVES, default="all_gather")
    parser.add_argument("--graphs", type=int, default=200)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--nbytes", type=parse_size, default=parse_size("1G"))
    asked = parser.parse_args()
    which, of = (preset_names(), of_preset), (range(asked.first, asked.first + asked.graphs), of_graph)
    names, function = which if asked.kind == "presets" else of
    with ProcessPoolExecutor(asked.workers) as pool:
        results = []
        for own in pool.map(function, names, repeat(asked.collective), repeat(asked.nbytes)):
            print(
                f"{own.network:14} {own.ranks:3} ranks: made {own.made:6.1%}, shipped {own.shipped:6.1%}, "
                f"{own.search_seconds:5.1f} s; {own.what}",
                flush=True,
            )
            results.append(own)
    for label, values in (
        ("what was made", [own.made for own in results]),
        ("the better of it and what ships", [own.best for own in results]),
    ):
        near = sum(value >= WITHIN for value in values)
        print(f"{asked.collective}, {label}: {near} of {len(values)} within 3 %, worst {min(values):.1%}")
    print(f"longest search {max(own.search_seconds for own in results):.1f} s")


if __name__ == "__main__":
    main()
