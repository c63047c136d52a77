"""All-reduce through shared memory beside Gloo's own, in turns in one run: ratios for 2 and 4 processes.

    python -m benchmarks.shared_memory [--ranks 2,4] [--iterations N]

Each figure is that of ``testbed bench``: of the slowest rank, the median turn, payload checked.  The last
column is of tensors that lie in memory that the ranks share, by ``--registered``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from typing import Any

from testbed.output.table import spell_size, stdout_console, table

SIZES = "4K,256K,4M,64M"
ALGORITHMS = ("native", "one_shot", "direct")


REGISTERED = "direct, registered"


def measured(num_ranks: int, iterations: int) -> dict[int, dict[str, float]]:
    """Return ratios to Gloo's time, by bytes and algorithm; and that time, in microseconds, as ``native``."""
    ratios = _run(num_ranks, iterations, ALGORITHMS)
    for nbytes, row in _run(num_ranks, iterations, ("native", "direct"), "--registered").items():
        ratios[nbytes][REGISTERED] = row["direct"]
    return ratios


def _run(
    num_ranks: int, iterations: int, algorithms: tuple[str, ...], *options: str
) -> dict[int, dict[str, float]]:
    command = [sys.executable, "-m", "testbed", "bench", "--transport", "shm", "--json", *options]
    command += ["--ranks", str(num_ranks), "--sizes", SIZES, "--iterations", str(iterations)]
    said = subprocess.run(
        [*command, "--algorithm", ",".join(algorithms)], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    rows: list[dict[str, Any]] = json.loads(said)["rows"]
    gloo = {row["size_bytes"]: row["time_us"] for row in rows if row["algorithm"] == "native"}
    ratios: dict[int, dict[str, float]] = {nbytes: {"native": time} for nbytes, time in gloo.items()}
    for row in rows:
        if row["algorithm"] != "native":
            ratios[row["size_bytes"]][row["algorithm"]] = row["time_us"] / gloo[row["size_bytes"]]
    return ratios


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--iterations", type=int, default=100)
    options = parser.parse_args()
    columns = (*ALGORITHMS[1:], REGISTERED)
    rows = []
    for num_ranks in map(int, options.ranks.split(",")):
        for nbytes, ratios in measured(num_ranks, options.iterations).items():
            ours = [f"{ratios[name]:.2f} ×" for name in columns]
            rows.append([str(num_ranks), spell_size(nbytes), f"{ratios['native']:,.0f}", *ours])
    stdout_console().print(table(["ranks", "bytes", "Gloo's own (µs)", *columns], rows))


if __name__ == "__main__":
    main()
