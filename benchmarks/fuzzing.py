"""Fuzzing of scripts of every kind: `testbed fuzz` over the examples, and over DDP with each strategy.

    python -m benchmarks.fuzzing --runs 1000 --workers 2

Prints how many runs of each ended how, and ends with exit code 1 where one was a violation or was not judged,
and where nothing was checked of a script; with 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from testbed.fuzzing.campaign import Tally, explore, fuzzing_result
from testbed.fuzzing.draw import Space
from testbed.fuzzing.scripts import Scripts

ROOT = Path(__file__).parents[1]
SHORT = ("--steps", "2", "--layers", "4")
SCRIPTS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("examples/data_parallel.py", ("--epochs", "1", "--layers", "2")),
    ("examples/accumulation.py", SHORT),
    ("examples/fsdp2.py", SHORT),
    ("examples/pipeline.py", (*SHORT, "--micro-batches", "4")),
    ("examples/pipeline.py", (*SHORT, "--micro-batches", "4", "--schedule", "1f1b")),
    ("examples/zero1.py", SHORT),
    *(
        ("benchmarks/fuzzed/strategies.py", ("--strategy", strategy))
        for strategy in (
            "after_backward",
            "per_parameter",
            "wait_free",
            "priority",
            "dear",
            "zero1",
            "zero1:prefetch=True",
            "data_parallel",
        )
    ),
)
"""Scripts and their arguments.  mg_wfbp goes by times that it measures, so its results may depend on them."""


def main() -> int:
    """Fuzz every script; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=1000, help="of all scripts together")
    parser.add_argument("--workers", type=int, help="processes; by default one for each core")
    parser.add_argument("--only", default="", help="scripts and arguments that hold this text")
    options = parser.parse_args()

    chosen = [(path, argv) for path, argv in SCRIPTS if options.only in " ".join((path, *argv))]
    if not chosen or options.runs < 1:
        parser.error(f"nothing to check: {len(chosen)} scripts hold {options.only!r}, --runs {options.runs}")
    runs, codes = -(-options.runs // len(chosen)), []
    for path, argv in chosen:
        codes.append(_fuzz(path, argv, runs, options.workers))
        if codes[-1] > 1:  # interrupted
            break
    return max(codes)


def _fuzz(path: str, argv: tuple[str, ...], runs: int, workers: int | None) -> int:
    """Fuzz one script, print what came of it, and return the exit code of that."""
    subject = Scripts(Space(str(ROOT / path), argv))
    tally: Tally = explore(
        subject.judge_batch,
        range(runs),
        batch_size=10,
        time_limit=None,
        workers=workers,
        scheduler=None,
        watch=lambda _: None,
    )
    smallest = subject.shrunk(tally.violated[0]) if tally.violated and not tally.interrupted else None
    fuzzing_result(" ".join((path, *argv)), tally, smallest).show()
    return tally.exit_code


if __name__ == "__main__":
    raise SystemExit(main())
