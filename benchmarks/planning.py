"""Times of plans: 10,080 collectives of 64 ranks and 1,000 training steps, by 1 and 2 workers.

    python -m benchmarks.planning [collectives|steps] [--workers N]

Nothing is known at first (no cache); processes that are started count.  Then the same is asked again with
what is known, and with one more value of an axis.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.planning import plan

Q = Mapping[str, Any]


def collectives(bandwidths: Sequence[int]) -> Q:
    """Return 160 sizes of two collectives by nine choices of algorithms, on 64 ranks of each network."""
    sizes = [2**power * (8 + eighth) // 8 for power in range(10, 30) for eighth in range(8)]
    reducing = ["default", "ring", "direct", "halving_doubling"]
    gathering = ["default", "ring", "direct", "swing", "recursive_doubling"]
    return {
        "ranks": [64],
        "set": {"nic_bandwidth": [f"{rate}Gbps" for rate in bandwidths]},
        "network": [{"name": "dgx-h100"}],
        "collective": [
            {"name": "all_reduce", "sizes": sizes, "algorithms": reducing},
            {"name": "all_gather", "sizes": sizes, "algorithms": gathering},
        ],
    }


def steps(bandwidths: Sequence[int]) -> Q:
    """Return four models by two strategies and five sizes of buckets, on 8 to 128 ranks of each network."""
    return {
        "ranks": [8, 16, 32, 64, 128],
        "set": {"nic_bandwidth": [f"{rate}Gbps" for rate in bandwidths]},
        "network": [{"name": "dgx-h100"}],
        "strategies": ["wait_free", "mg_wfbp"],
        "bucket_caps_mb": [5, 10, 25, 50, 100],
        "profile": [{"name": name} for name in ("gpt2-xl", "resnet50", "llama3-8b", "bert-large")],
    }


KINDS = {
    "collectives": (collectives, (100, 200, 300, 400, 500, 600, 800), 900),
    "steps": (steps, (50, 100, 200, 400, 800), 300),
}


def timed(name: str, question: Q, workers: int, cache: str) -> None:
    """Plan once; print what it took."""
    cpu, began = _cpu_seconds(), time.monotonic()
    rows = plan(question, workers=workers, cache=cache, explain=False).rows
    seconds = time.monotonic() - began
    failed = sum(bool(row.problem) for row in rows)
    print(
        f"{name:40} {len(rows):6} points, {failed} without figures, {workers} workers: "
        f"{seconds:6.1f} s, {_cpu_seconds() - cpu:6.1f} s of CPU",
        flush=True,
    )


def _cpu_seconds() -> float:
    """Return the CPU seconds of this process and of those that it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(own.ru_utime + own.ru_stime for own in used)


def main() -> None:
    """Time the plans that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=[*KINDS, "both"], nargs="?", default="both")
    parser.add_argument("--workers", type=int, action="append", help="may be repeated; by default 1 and 2")
    asked = parser.parse_args()
    print(f"load of this machine: {os.getloadavg()[0]:.1f}, cores: {os.cpu_count()}")
    for kind in KINDS if asked.kind == "both" else [asked.kind]:
        question, bandwidths, more = KINDS[kind]
        for workers in asked.workers or (1, 2):
            with tempfile.TemporaryDirectory() as folder:
                cache = str(Path(folder))
                timed(kind, question(bandwidths), workers, cache)
                timed("  the same again", question(bandwidths), workers, cache)
                if workers > 1:
                    timed("  with one more network", question((*bandwidths, more)), workers, cache)


if __name__ == "__main__":
    main()
