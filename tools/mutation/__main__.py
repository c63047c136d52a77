"""Feed mutated inputs to every loader and parser, and keep those that are not read rightly or refused.

    python -m tools.mutation --inputs 100000
    python -m tools.mutation --seed 7 --time-limit 600 --only profile --only size

Exit codes: 0 if every input was read or refused, 1 if not, 2 for a wrong call.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from testbed.output.table import progress, stdout_console, table
from tools.mutation import command_words, data_files
from tools.mutation.outcome import Failure, drawn, limit_memory, outcome_of
from tools.mutation.target import Target

TARGETS = {target.name: target for target in (*data_files.TARGETS, *command_words.TARGETS)}
BATCH = 500
DESCRIPTION = "Feed mutated inputs to every loader and parser, and keep those that fail."


def main(arguments: Sequence[str] | None = None) -> int:
    """Feed, print what came of it, and return the exit code: 1 also where nothing was fed."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutation", description=DESCRIPTION)
    parser.add_argument("--inputs", type=int, default=20_000, help="how many in all")
    parser.add_argument("--seed", type=int, default=0, help="of the mutations")
    parser.add_argument("--time-limit", type=float, default=float("inf"), help="seconds")
    parser.add_argument("--only", action="append", choices=TARGETS, help="target; may be repeated")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes; by default as cores")
    options = parser.parse_args(arguments)
    targets = [TARGETS[name] for name in options.only or TARGETS]

    batches = list(batches_of(targets, options.inputs))
    deadline = time.time() + options.time_limit
    counts: Counter[tuple[str, str]] = Counter()
    failures: dict[str, Failure] = {}
    with (
        ProcessPoolExecutor(options.jobs, initializer=limit_memory) as pool,
        progress(len(batches)) as advance,
    ):
        for done, found in pool.map(partial(fed, seed=options.seed, deadline=deadline), batches):
            counts += done
            for failure in found:
                failures.setdefault(failure.place, failure)
            advance(f"{counts.total()} inputs, {len(failures)} failures")

    _print(counts, failures)
    return 1 if failures or not counts else 0


def batches_of(targets: Sequence[Target], inputs: int) -> Iterator[tuple[str, int, int]]:
    """Yield parts of the work: target, first number, number behind the last; targets take turns."""
    whole = sum(target.weight for target in targets)
    shares = {target.name: -(-inputs * target.weight // whole) for target in targets}
    for first in range(0, max(shares.values()), BATCH):
        for name, share in shares.items():
            if first < share:
                yield name, first, min(first + BATCH, share)


def fed(
    batch: tuple[str, int, int], seed: int, deadline: float
) -> tuple[Counter[tuple[str, str]], list[Failure]]:
    """Return what came of a batch, by target and outcome, and its failures."""
    name, first, end = batch
    counts: Counter[tuple[str, str]] = Counter()
    failures = []
    for number in range(first, end):
        if time.time() > deadline:
            break
        outcome = outcome_of(TARGETS[name], drawn(TARGETS[name], seed, number))
        if isinstance(outcome, Failure):
            failures.append(outcome)
        counts[name, outcome.kind if isinstance(outcome, Failure) else outcome] += 1
    return counts, failures


def _print(counts: Counter[tuple[str, str]], failures: dict[str, Failure]) -> None:
    kinds = ("read", "refused", "traceback", "hang", "wrong answer")
    fed_ones = [name for name in TARGETS if any(counts[name, kind] for kind in kinds)]
    rows = [[name, *(f"{counts[name, kind]:,}" for kind in kinds)] for name in fed_ones]
    total = [f"{sum(counts[name, kind] for name in TARGETS):,}" for kind in kinds]
    stdout_console().print(table(("target", *kinds), [*rows, [f"{counts.total():,} in all", *total]]))
    for failure in failures.values():
        print(f"{failure.target}, {failure.kind}: {failure.evidence}")
        print(f"  {failure.content[:300]!r}")
        print(f"  kept: {failure.keep()}")


if __name__ == "__main__":
    raise SystemExit(main())
