"""All-reduce through shared memory beside Gloo's own, in turns in one run: ratios for 2 and 4 processes.

    python -m benchmarks.shared_memory [--ranks 2,4] [--iterations N]

Each figure is that of ``testbed bench``: of the slowest rank, the median turn, payload checked.  The last two
columns are of what ``connect(transport="shm")`` chooses for the size; the last one is of tensors that lie in
memory that the ranks share, by ``--registered``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

from collectives.communicators.on_one_host import OnOneHost
from sim.units import parse_size
from testbed.output.table import spell_size, stdout_console, table

SIZES = ("4K", "256K", "4M", "16M", "64M")
DIRECT = "direct"
CHOSEN = "connect's"
REGISTERED = f"{CHOSEN}, registered"


def measured(num_ranks: int, size: str, iterations: int) -> dict[str, float]:
    """Return ratios to Gloo's time, by column; and that time, in microseconds, as ``native``."""
    chosen = str(OnOneHost().select("all_reduce", parse_size(size)))
    common = ["--ranks", str(num_ranks), "--sizes", size, "--iterations", str(iterations)]
    ratios = _ratios([*common, "--algorithm", ",".join(dict.fromkeys(("native", DIRECT, chosen)))])
    registered = _ratios([*common, "--algorithm", f"native,{chosen}", "--registered"])
    return {**ratios, CHOSEN: ratios[chosen], REGISTERED: registered[chosen]}


def _ratios(options: list[str]) -> dict[str, float]:
    command = [sys.executable, "-m", "testbed", "bench", "--transport", "shm", "--json", *options]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    times: dict[str, float] = {row["algorithm"]: row["time_us"] for row in json.loads(said)["rows"]}
    gloo = times.pop("native")
    return {"native": gloo, **{algorithm: time / gloo for algorithm, time in times.items()}}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--iterations", type=int, default=100)
    options = parser.parse_args()
    columns = (DIRECT, CHOSEN, REGISTERED)
    rows = []
    for num_ranks in map(int, options.ranks.split(",")):
        for size in SIZES:
            ratios = measured(num_ranks, size, options.iterations)
            ours = [f"{ratios[name]:.2f} ×" for name in columns]
            rows.append([str(num_ranks), spell_size(parse_size(size)), f"{ratios['native']:,.0f}", *ours])
    stdout_console().print(table(["ranks", "bytes", "Gloo's own (µs)", *columns], rows))


if __name__ == "__main__":
    main()
