"""Time and memory of the engines, and their distance from closed forms.

    python benchmarks/engines.py                             prints the table
    python benchmarks/engines.py --case "H-hier"             only cases with this in their title
    python benchmarks/engines.py --write docs/engines.md     puts tables there, and a figure beside it

Each run is a fresh process, in which Python, NumPy and the package have been imported, and nothing else has
happened: building the network counts, and so do routes, the floor and all caches.  Time is wall time, the
best of three; memory is the most that the process has held, Python itself included.

Run it while the machine does nothing else.  Where wall time is well above processor time, others were at
work; as the engines use one core and wait for nothing, processor time is then given, with a star.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from engine_cases import CASES, OVER_N, OVER_SIZE_N, SIZES, Case, over_size

from testbed.output.figure import check_plot
from testbed.output.table import Advance, progress, seconds

REPEATS = 3
BUSY = 1.15
"""Wall time over processor time from which on others must have been at work."""

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


@dataclass(frozen=True)
class Measured:
    """What a case has taken.

    Attributes:
        title: of the case.
        seconds: wall time of the best run.
        cpu_seconds: processor time of that run.
        peak_bytes: the most memory of any run.
        time_ps: the simulated time.
    """

    title: str
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    time_ps: int | None

    @property
    def is_disturbed(self) -> bool:
        """Whether others were at work."""
        return self.seconds > BUSY * self.cpu_seconds

    @property
    def taken(self) -> float:
        """Wall time, or processor time if others were at work, in seconds."""
        return self.cpu_seconds if self.is_disturbed else self.seconds


def run_here(case: Case) -> Measured:
    """Run *case* once, in this process."""
    wall, cpu = time.perf_counter(), time.process_time()
    time_ps = case.run()
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return Measured(case.title, wall, cpu, _peak_bytes(), time_ps)


def _peak_bytes() -> int:
    """Return the most memory that this process has held.

    What getrusage says of it begins, under Linux, with what the parent held when it started this process.
    """
    for line in _lines("/proc/self/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def measure(case: Case) -> Measured:
    """Return the best of several runs of *case*, each in a process of its own."""
    runs = []
    for _ in range(REPEATS):
        command = [sys.executable, __file__, "--run", case.title]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        runs.append(Measured(**json.loads(done.stdout)))
    best = min(runs, key=lambda run: run.taken)
    peak = max(run.peak_bytes for run in runs)
    return Measured(case.title, best.seconds, best.cpu_seconds, peak, best.time_ps)


def every_case() -> dict[str, Case]:
    """Return all cases by title: those of the table and of the figure."""
    figure = [case for cases in OVER_N.values() for case in cases]
    sizes = [
        over_size(engine, nbytes)
        for engine in ("makespan", "events")
        for these in SIZES.values()
        for nbytes in these
    ]
    return {case.title: case for case in [*figure, *sizes, *CASES]}


def table(measured: dict[str, Measured]) -> str:
    """Return what was measured of `CASES`, beside other simulators, as Markdown."""
    head = ["engine", "case", "time", "memory", "closed form", "LogGOPSim", "ASTRA-sim", "SimGrid"]
    rows = [_cells(case, measured[case.title]) for case in CASES if case.title in measured]
    rule = ["---", "---", *["---:"] * (len(head) - 2)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, rule, *rows))


def _cells(case: Case, run: Measured) -> list[str]:
    error = ""
    if case.form is not None and run.time_ps is not None:
        off = run.time_ps / case.form() - 1
        error = "`==`" if run.time_ps == case.form() else f"{off:+.1e}"
    astra = [taken for taken in (case.peers.astra, case.peers.astra_contention) if taken is not None]
    return [
        case.engine,
        case.name,
        seconds(run.taken) + (" *" if run.is_disturbed else ""),
        f"{run.peak_bytes / 1e6:.0f} MB",
        error,
        *(
            " / ".join(f"{taken:g} s" for taken in took if taken is not None)
            for took in ([case.peers.loggopsim], astra, [case.peers.simgrid])
        ),
    ]


def over_size_table(measured: dict[str, Measured]) -> str:
    """Return the least and the most time over all sizes, as Markdown."""
    lines = "| engine | sizes | quickest | slowest | at | ratio |\n|---|---|---:|---:|---:|---:|\n"
    for engine in ("makespan", "events"):
        for name, sizes in SIZES.items():
            taken = {size: measured[over_size(engine, size).title].taken for size in sizes}
            low, high = min(taken.values()), max(taken.values())
            at = next(size for size, one in taken.items() if one == high)
            cells = [engine, name, seconds(low), seconds(high), f"{at:,} B", f"{high / low:.1f}"]
            lines += f"| {' | '.join(cells)} |\n"
    return lines


def machine() -> str:
    """Return what this was measured on."""
    names = [
        line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")
    ]
    processor = names[0] if names else platform.machine()
    parts = [f"{name} {version(name)}" for name in ("numpy", "simpy")]
    return (
        f"{processor}, {os.cpu_count()} cores of a virtual machine, {platform.system()}, "
        f"Python {platform.python_version()}, {', '.join(parts)}"
    )


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def report(measured: dict[str, Measured]) -> str:
    """Return what goes into the document."""
    disturbed = any(run.is_disturbed for run in measured.values())
    busy = " With a star: processor time, as others were at work." if disturbed else ""
    return (
        f"Measured by `python benchmarks/engines.py` on {machine()}.{busy}\n\n{table(measured)}\n"
        f"Rings of {OVER_SIZE_N} ranks on a switch, over sizes from 1 KiB to 1 GiB:\n\n"
        f"{over_size_table(measured)}"
    )


def around(document: Path) -> tuple[str, str]:
    """Return what stands in *document* before and after what is measured, marks included.

    Raises:
        SystemExit: it does not have the two marks.
    """
    text = document.read_text(encoding="utf-8") if document.is_file() else ""
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise SystemExit(f"{document}: expected a document with one {BEGIN} and one {END} to write between")
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    return f"{before}{BEGIN}\n", f"{END}{after}"


def measure_all(cases: Iterable[Case], advance: Advance) -> dict[str, Measured]:
    """Return what each of *cases* takes, by title."""
    measured = {}
    for case in cases:
        advance(case.title)
        measured[case.title] = measure(case)
    return measured


def main() -> None:
    """Measure; print, write or draw."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--case", metavar="TEXT", help="only cases with this in their title, such as 'events: sw'"
    )
    parser.add_argument("--json", action="store_true", help="print figures instead of a table")
    parser.add_argument(
        "--write",
        type=Path,
        metavar="FILE",
        help="write tables between the marks of FILE, and draw beside it",
    )
    parser.add_argument("--run", metavar="TITLE", help="run one case in this process, and print what it took")
    given = parser.parse_args()
    cases = every_case()
    if given.run is not None:
        print(json.dumps(asdict(run_here(cases[given.run]))))
        return
    if given.write and given.case:
        parser.error("--write needs all cases; leave out --case")
    chosen = list(cases.values()) if given.write else CASES
    if given.case is not None:
        chosen = [case for case in CASES if given.case in case.title]
        if not chosen:
            parser.error(
                f"--case: no title has {given.case!r} in it; there are " + "; ".join(c.title for c in CASES)
            )
    if given.write:
        before, after = around(given.write)
        check_plot(given.write.with_suffix(".png"))
    with progress(len(chosen)) as advance:
        measured = measure_all(chosen, advance)
    if given.write:
        from engines_plot import draw

        draw({title: run.taken for title, run in measured.items()}, given.write.with_suffix(".png"))
        given.write.write_text(f"{before}{report(measured)}{after}", encoding="utf-8")
    if given.json:
        print(json.dumps([asdict(run) for run in measured.values()], indent=2))
    else:
        print(table(measured), end="")


if __name__ == "__main__":
    main()
