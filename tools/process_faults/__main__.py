"""Kill processes over Gloo, and cut their cables, at random moments; see that the others name the culprit.

    python -m tools.process_faults
    python -m tools.process_faults --runs 10 --kind cut --seed 7

Cutting needs root and iproute2.  Exit codes: 0 if every survivor has raised in time and named the culprit,
1 if not, 2 for a wrong call, 130 if it was interrupted.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from benchmarks.lab.shaped.built import check_possible
from testbed.errors import UsageError
from testbed.output.table import progress, stdout_console, table
from tools.process_faults.elastic import BACKENDS, faults_of_restart
from tools.process_faults.trials import KINDS, Trial, faults_of, workers

DESCRIPTION = "Kill processes over Gloo, and cut their cables, at random moments."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print a table and what is wrong, and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.process_faults", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--runs", type=int, default=100, help="how many trials; by default 100")
    parser.add_argument("--seed", type=int, default=0, help="of the first; the next one has the next")
    parser.add_argument("--kind", choices=KINDS, action="append", help="by default all that can be here")
    parser.add_argument("--restarts", type=int, default=3, help="runs of torchrun --max-restarts, by backend")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args(arguments)
    kinds = tuple(options.kind or _possible())

    began = time.monotonic()
    counts: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    said: list[str] = []

    def note(what: str, name: str, faults: list[str]) -> None:
        counts[what] += 1
        wrong[what] += bool(faults)
        said.extend(f"{name}: {fault}" for fault in faults)

    num_runs = options.runs + len(BACKENDS) * options.restarts
    with suppress(KeyboardInterrupt), workers() as pool, progress(num_runs) as advance:
        for seed in range(options.seed, options.seed + options.runs):
            trial = Trial.drawn(seed, kinds)
            advance(f"{trial.kind}, {trial.way}")
            note(
                trial.kind,
                f"seed {seed} ({trial.kind}, {trial.way}, rank {trial.culprit})",
                faults_of(trial, pool),
            )
        for backend in BACKENDS:
            for seed in range(options.restarts):
                advance(f"restart, {backend}")
                note(f"restart, {backend}", f"restart {seed}, {backend}", faults_of_restart(backend, seed))

    seconds = time.monotonic() - began
    if options.json:
        print(
            json.dumps(
                {"seconds": seconds, "wanted": num_runs, "runs": counts, "wrong": wrong, "faults": said},
                indent=2,
            )
        )
    else:
        rows = [[what, str(counts[what]), str(wrong[what])] for what in counts]
        stdout_console().print(table(("what", "runs", "wrong"), rows))
        print(f"{sum(counts.values())} of {num_runs} runs in {seconds:.0f} s", *said, sep="\n")
    return int(bool(said) or not counts) if sum(counts.values()) == num_runs else 130


def _possible() -> list[str]:
    """Return what can be done here: cutting only where networks can be built."""
    try:
        check_possible()
    except UsageError as error:
        print(f"without cut cables: {error}")
        return [kind for kind in KINDS if kind != "cut"]
    return list(KINDS)


if __name__ == "__main__":
    raise SystemExit(main())
