"""Run torch's own suite on our ranks, and judge it against the expected differences.

    python -m tools.torch_suite
    python -m tools.torch_suite --place processes --ddp torch --world-size 4 test_all_gather

Exit codes: 0 if every test came to what is expected of it, 1 if not, 2 for a wrong call.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path

from testbed.output.table import stdout_console, table
from tools.torch_suite import expected
from tools.torch_suite.expected import DDPS, PLACES, WORLD_SIZES, Run
from tools.torch_suite.outcome import Outcome, Result, read

DESCRIPTION = "Run torch's own suite on our ranks, and judge it against the expected differences."
FOLDER = Path("results") / "torch_suite"
RESULTS: tuple[Result, ...] = ("passed", "skipped", "failed")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print a table and what is wrong, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.torch_suite", description=DESCRIPTION)
    parser.add_argument("--place", choices=PLACES, action="append", help="by default both")
    parser.add_argument("--ddp", choices=DDPS, action="append", help="whose; by default both")
    parser.add_argument("--world-size", type=int, choices=WORLD_SIZES, action="append", help="by default all")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count(), help="runs at a time; by default as cores"
    )
    parser.add_argument("--results", type=Path, default=FOLDER, help="folder for outcomes and logs")
    parser.add_argument("tests", nargs="*", help="names; by default all")
    options = parser.parse_args(arguments)

    began = time.monotonic()
    differences = expected.load()
    choices = options.place or PLACES, options.ddp or DDPS, options.world_size or WORLD_SIZES
    runs = [Run(*choice) for choice in product(*choices)]
    rows: list[list[str]] = []
    faults: list[str] = []
    with ThreadPoolExecutor(options.jobs) as pool:
        results = pool.map(partial(outcomes_of, tests=options.tests, results=options.results), runs)
        for run, outcomes in zip(runs, results, strict=True):
            found = expected.judge(run, outcomes, differences, complete=not options.tests)
            counts = Counter(outcome.result for outcome in outcomes)
            seconds = sum(outcome.seconds for outcome in outcomes)
            figures = [*(counts[result] for result in RESULTS), len(found), round(seconds)]
            rows.append([str(run), *map(str, figures)])
            faults += [f"{run}: {fault}" for fault in found]
            passed, failed = counts["passed"], counts["failed"]
            print(f"{run}: {passed} passed, {failed} failed", file=sys.stderr, flush=True)

    stdout_console().print(table(["run", *RESULTS, "unexpected", "seconds"], rows))
    print(f"{len(faults)} unexpected; {(time.monotonic() - began) / 60:.1f} min", *faults, sep="\n")
    return 1 if faults else 0


def outcomes_of(run: Run, tests: Sequence[str], results: Path) -> list[Outcome]:
    """Start the driver of *run*, and return what became of its tests; a driver that dies counts as one."""
    results.mkdir(parents=True, exist_ok=True)
    name = f"{run.place}-{run.ddp}-{run.world_size}"
    out, log = results / f"{name}.jsonl", results / f"{name}.log"
    out.unlink(missing_ok=True)
    command = [sys.executable, "-m", f"tools.torch_suite.{run.place}", "--world-size", str(run.world_size)]
    command += ["--ddp", run.ddp, "--out", str(out), *tests]
    with log.open("w") as text:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"}
        code = subprocess.run(command, stdout=text, stderr=text, env=environment).returncode

    outcomes = read(out)
    if code:
        outcomes.append(Outcome("the driver", "failed", f"exit code {code}; its words are in {log}"))
    return outcomes


if __name__ == "__main__":
    sys.exit(main())
