"""NCCL's own model, and reduction in switches, beside published measurements.

    python benchmarks/nccl_model.py

The measurements (``tests/data/nccl_times.csv``, each with its source) are of nccl-tests, out of place,
1 KiB and up.  Nothing in the model was fitted to them.  Runs for which an algorithm was forced are
compared with that algorithm, all others with what the model chooses.  The error is that of the time.

Networks and what NCCL uses on them are the presets.  The last table holds the all-reduces of 1 GiB and up in
one node against `collectives.timing.formulas.in_network`.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import median

from collectives.timing.formulas.bandwidth import busbw
from collectives.timing.formulas.in_network import in_network_ps
from collectives.timing.formulas.nccl.model import Prediction, table
from sim import Topology, load_network
from sim.units import SECOND, format_size

DATA = Path(__file__).parents[1] / "tests" / "data" / "nccl_times.csv"

CLASSES = {"below 64 KiB": 2**16, "to 16 MiB": 2**24 + 1, "above": 2**63}


@dataclass(frozen=True)
class Comparison:
    """A published time beside what the model expects."""

    system: str
    network: Topology
    nbytes: int
    measured: float
    predicted: Prediction

    @property
    def error(self) -> float:
        """How much longer the prediction is than the measurement, as a fraction of the latter."""
        return self.predicted.seconds / self.measured - 1

    @property
    def size_class(self) -> str:
        """The class of the size."""
        return next(name for name, end in CLASSES.items() if self.nbytes < end)


def comparisons() -> Iterator[Comparison]:
    """Yield every measurement with its prediction, in the order of the file."""
    with DATA.open(newline="") as file:
        for row in csv.DictReader(file):
            nodes, per_node = int(row["num_nodes"]), int(row["ranks_per_node"])
            network = load_network(row["network"]).topology(nodes * per_node)
            assert network.hardware is not None, f"{row['network']} says what NCCL uses on it"
            candidates = table(
                row["collective"],
                int(row["size_bytes"]),
                num_nodes=nodes,
                ranks_per_node=per_node,
                hardware=network.hardware,
            )
            forced = row["algorithm"]
            best = min(
                (one for one in candidates if forced in ("", one.algorithm)), key=lambda one: one.seconds
            )
            system = (
                f"{row['set']}: {row['network']} {nodes} × {per_node}, {row['collective']}"
                f"{', forced ' + forced if forced else ''}"
            )
            yield Comparison(system, network, best.nbytes, float(row["time_us"]) * 1e-6, best)


def main() -> None:
    """Print every row of every system, then the errors by class of size."""
    summary: list[tuple[str, list[str]]] = []
    for system, rows in groupby(comparisons(), key=lambda row: row.system):
        found = list(rows)
        print(f"\n{system}\n      size  choice               measured   expected     error    busbw GB/s")
        for row in found:
            best = row.predicted
            rate = busbw(best.collective, best.nbytes, row.measured, best.num_ranks) / 1e9
            print(
                f"{format_size(row.nbytes):>10}  {best.algorithm + ' ' + best.protocol:<16} "
                f"{row.measured * 1e6:>9.1f} us {best.seconds * 1e6:>7.1f} us  {100 * row.error:>+6.1f} %  "
                f"{rate:>6.1f} / {best.busbw / 1e9:.1f}"
            )
        summary.append((system, [_errors(found, name) for name in CLASSES]))
    print(f"\n| system | {' | '.join(CLASSES)} |\n|---|---|---|---|")
    for system, cells in summary:
        print(f"| {system} | {' | '.join(cells)} |")
    print("\n| system | sizes | in-network: error of the time |\n|---|---|---|")
    reduced = [row for row in comparisons() if row.nbytes >= 2**30 and row.predicted.algorithm == "NVLS"]
    for system, rows in groupby(reduced, key=lambda row: row.system):
        _print_in_network(system, list(rows))


def _print_in_network(system: str, rows: list[Comparison]) -> None:
    """Print how far off a switch that reduces is on a system, by ascending size, as a row of a table."""
    errors = [
        in_network_ps("all_reduce", row.nbytes, row.network, range(row.predicted.num_ranks))
        / SECOND
        / row.measured
        - 1
        for row in rows
    ]
    sizes = ", ".join(format_size(row.nbytes) for row in rows)
    print(f"| {system} | {sizes} | {', '.join(f'{100 * error:+.1f} %' for error in errors)} |")


def _errors(rows: Iterable[Comparison], size_class: str) -> str:
    """Return the median error of a class of size, and the worst; empty without a row."""
    errors = [row.error for row in rows if row.size_class == size_class]
    return f"{100 * median(errors):+.0f} % (worst {100 * max(errors, key=abs):+.0f} %)" if errors else ""


if __name__ == "__main__":
    main()
