"""All-reduce through shared memory beside Gloo's own, in turns in one run: ratios for 2 and 4 processes.

    python -m benchmarks.shared_memory [--ranks 2,4] [--iterations N]

Each figure is that of ``testbed bench``: of the slowest rank, the median turn, payload checked.
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


def measured(num_ranks: int, iterations: int) -> dict[int, dict[str, float]]:
    """Return microseconds of each algorithm by bytes, native being Gloo's."""
    command = [sys.executable, "-m", "testbed", "bench", "--transport", "shm", "--json"]
    command += ["--ranks", str(num_ranks), "--sizes", SIZES, "--iterations", str(iterations)]
    said = subprocess.run(
        [*command, "--algorithm", ",".join(ALGORITHMS)], check=True, stdout=subprocess.PIPE, text=True
    ).stdout
    times: dict[int, dict[str, float]] = {}
    rows: list[dict[str, Any]] = json.loads(said)["rows"]
    for row in rows:
        times.setdefault(row["size_bytes"], {})[row["algorithm"]] = row["time_us"]
    return times


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--iterations", type=int, default=100)
    options = parser.parse_args()
    rows = []
    for num_ranks in map(int, options.ranks.split(",")):
        for nbytes, times in measured(num_ranks, options.iterations).items():
            ours = [f"{times[name] / times['native']:.2f} ×" for name in ALGORITHMS[1:]]
            rows.append([str(num_ranks), spell_size(nbytes), f"{times['native']:,.0f}", *ours])
    stdout_console().print(table(["ranks", "bytes", "Gloo's own (µs)", *ALGORITHMS[1:]], rows))


if __name__ == "__main__":
    main()
