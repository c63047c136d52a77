"""Synthesised programs against those that ship, on networks that are built on this machine (root, iproute2).

    python -m benchmarks.shaped_synthesis examples/networks/shaped/thin_trunk.toml … [--collective all_reduce]
                                          [--nbytes 8M] [--latency 300us] [--repetitions 7]

Hosts are network namespaces, links are held to their rates by token buckets (`benchmarks.lab.shaped`).  For
the network of each file a program is made, with a latency that stands for what software costs here, and timed
in turns with the `SHIPPED` that cost least by estimate, and with the vendor's.  Ratios are of medians.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.lab.shaped.built import built
from benchmarks.lab.shaped.hosts import started
from benchmarks.lab.shaped.plan import plan, wire
from benchmarks.lab.shaped.timing import Call, fitting, time_calls
from collectives.synthesis import COLLECTIVES, synthesize
from collectives.timing.cost import Cheapest
from sim import Topology, load_network
from sim.units import parse_size, parse_time

SHIPPED = 6


def contenders(topology: Topology, collective: str, nbytes: int) -> list[str]:
    """Return the programs that ship that cost least by estimate, and the vendor's."""
    ranked = sorted(Cheapest(topology).costs(collective), key=lambda own: own[0].seconds(nbytes))
    return [*(str(algorithm) for _, algorithm in ranked[:SHIPPED]), "native"]


def compare(file: str, collective: str, nbytes: int, latency_ps: int, repetitions: int, folder: Path) -> None:
    """Build the network of *file*, and print what each program takes on it."""
    wires = wire(load_network(file))
    modelled = replace(wires, link_latency=np.full(wires.num_links, latency_ps // 2))
    nbytes = fitting(nbytes, collective, wires.num_ranks)
    made = synthesize(modelled, collective, nbytes)
    path = folder / f"{Path(file).stem}.json"
    made.schedule.save(path)
    names = [str(path), *contenders(modelled, collective, nbytes)]
    taken: dict[str, list[float]] = {name: [] for name in names}
    with built(plan(wires)) as network, started(network) as hosts:
        for _ in range(repetitions):
            for name in names:
                [seconds] = time_calls(hosts, [Call(collective, name, nbytes)], repetitions=1)
                taken[name] += seconds
    print(
        f"{Path(file).stem}, {wires.num_ranks} hosts, {collective} of {nbytes} bytes: simulated "
        f"{made.seconds:.3f} s, {made.optimum_seconds / made.seconds:.1%} of the optimum; best shipped "
        f"{made.shipped} {made.shipped_seconds:.3f} s"
    )
    own = median(taken[str(path)])
    for name, seconds in sorted(taken.items(), key=lambda entry: median(entry[1])):
        label = "synthesized" if name == str(path) else name
        print(
            f"  {label:42} {median(seconds):.3f} s ({min(seconds):.3f} to {max(seconds):.3f}), "
            f"{median(seconds) / own:.2f} times as long",
            flush=True,
        )


def main() -> None:
    """Compare on the network of each file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", metavar="FILE.toml")
    parser.add_argument("--collective", choices=COLLECTIVES, default="all_reduce")
    parser.add_argument("--nbytes", type=parse_size, default=parse_size("8M"))
    parser.add_argument("--latency", type=parse_time, default=parse_time("300us"))
    parser.add_argument("--repetitions", type=int, default=7)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for file in asked.files:
            compare(file, asked.collective, asked.nbytes, asked.latency, asked.repetitions, Path(folder))


if __name__ == "__main__":
    main()
