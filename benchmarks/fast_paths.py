"""Fast paths of the engines: what each saves on its row of the benchmark, and how it is switched off.

    python benchmarks/fast_paths.py                     prints the table
    python benchmarks/fast_paths.py --path "one size"   only paths with this in their name

A fast path gives the same picoseconds without it, and is worth its lines while it saves two thirds of some
work: so it stands in `FAST_PATHS`, with a row of `engine_cases` that is slower without it, and with a small
case in which a test counts that work.  Times are of the processor, the best of some runs, each in a fresh
process, with the path and without it in turn.
"""

from __future__ import annotations

import argparse
import json
import pkgutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
from anchors import ANCHORS, MIB, nodes, switch
from engines import REPEATS, every_case

from collectives import simulate
from collectives.program.rank_array import Deferred
from collectives.timing.rows import repeated_rows, row_execution
from collectives.timing.rows.coflow_times import CoflowTimes
from collectives.timing.rows.row_messages import ActiveRow
from sim import Jitter, Topology
from sim.network.coflow.coflow import Coflow
from testbed.output.table import seconds

Weight = Callable[..., int]
"""How much work a call is, from its arguments."""

WORTH = 3
"""How many times as much work is done without a fast path, at least."""

_ROWS = "collectives.timing.rows.pattern"
_ENGINES = "collectives.timing.rows"
_COFLOW = "sim.network.coflow.coflow"


def _one(*_: Any, **__: Any) -> int:
    return 1


@dataclass(frozen=True)
class FastPath:
    """Something that is only there to be fast.

    Attributes:
        name: what it does, for people.
        row: title of the case of the benchmark that is slower without it.
        off: what takes the place of what, by full name, to switch it off.
        work: full name of a function whose calls are what it saves.
        small: a small case of the same kind; returns picoseconds.
        weight: of each call of *work*.
    """

    name: str
    row: str
    off: dict[str, Any]
    work: str
    small: Callable[[], int]
    weight: Weight = _one

    @contextmanager
    def switched(self, off: bool) -> Iterator[None]:
        """Switch it off meanwhile, if *off*; what was kept of earlier runs is forgotten."""
        repeated_rows._found.cache_clear()
        repeated_rows._kept.cache_clear()
        with ExitStack() as stack:
            for name, value in self.off.items() if off else ():
                stack.enter_context(patch(name, value))
            yield

    def counted(self, off: bool) -> tuple[int, int]:
        """Return picoseconds of the small case, and the work that was done for it."""
        function, done = pkgutil.resolve_name(_with_colon(self.work)), 0

        def counting(*arguments: Any, **options: Any) -> Any:
            nonlocal done
            done += self.weight(*arguments, **options)
            return function(*arguments, **options)

        with self.switched(off), patch(self.work, counting):
            return self.small(), done


def _with_colon(name: str) -> str:
    """Return the full name of a function of a module or of a class as `pkgutil.resolve_name` wants it."""
    parts = name.split(".")
    at = next((n for n, part in enumerate(parts) if part.lstrip("_")[:1].isupper()), len(parts) - 1)
    return f"{'.'.join(parts[:at])}:{'.'.join(parts[at:])}"


def _ring(engine: Any, n: int, nbytes: int, **options: Any) -> Callable[[], int]:
    return lambda: simulate("ring", nbytes=nbytes, topology=switch(n), engine=engine, **options).time_ps


def _anchor(engine: Any, name: str, n: int) -> Callable[[], int]:
    anchor = ANCHORS[name]

    def run() -> int:
        topology, nbytes = anchor.topology(n), anchor.nbytes(n)
        return simulate(
            anchor.algorithm, nbytes=nbytes, topology=topology, engine=engine, **anchor.options
        ).time_ps

    return run


def _forgetful(method: Callable[..., Any], *forgotten: str) -> Callable[..., Any]:
    """Return *method* of an object that has forgotten some attributes before each call."""

    def call(self: Any, *arguments: Any) -> Any:
        for name in forgotten:
            setattr(self, name, None)
        return method(self, *arguments)

    return call


def _solved_anew(self: Coflow, nbytes: Any) -> Any:
    self._known.clear()
    return _DURATIONS(self, nbytes)


def _alone_anew(self: Coflow, nbytes: Any) -> Any:
    self._alone = -1, self._alone[1]
    return _ALONE(self, nbytes)


def _at_once(self: Deferred, compute: Callable[[], Any], place: tuple[int, int] | None = None) -> None:
    _DEFER(self, compute, place)
    np.asarray(self)


def _one_by_one(times: Any, ready: Any, sizes: Any, busy_until: Any, count: int) -> Any:
    for _ in range(count):
        ready = times.advance(ready, sizes, busy_until)
    return ready


def _listed(_: Any, row: ActiveRow) -> int:
    """Return how many ranks of *row* are noted one by one."""
    is_listed = row.takes_part is not None and len(row.ranks) <= row_execution.MANY
    return len(row.ranks) if is_listed else 0


def _nothing(*_: Any) -> None:
    return None


def _no(*_: Any) -> bool:
    return False


_DURATIONS, _ALONE, _DEFER = Coflow.durations_ps, Coflow._alone_ps, Deferred.__init__
_UNEVEN, _TINY = 32 * 100 + 7, 67
_NOT_EVEN = "makespan: sw, N = 16384, does not divide"

FAST_PATHS = [
    FastPath(
        "coflows are carried as wholes",
        "events: sw, N = 256",
        {"sim.network.coflow.accelerator.CoflowAccelerator.try_launch": _no},
        "sim.network.network.Network._start",
        _ring("events", 32, MIB),
    ),
    FastPath(
        "coflows that dissolve are given up",
        "events: fat tree, ring, N = 128",
        {"sim.network.coflow.accelerator.MAX_DISSOLVED": 2**62},
        "sim.network.network.Network.resume",
        lambda: (
            simulate(
                "ring",
                nbytes=MIB,
                topology=Topology.fat_tree(k=6, num_ranks=54, bandwidth="100Gbps", latency="1us"),
                engine="events",
            ).time_ps
        ),
    ),
    FastPath(
        "what is left of coflows that meet is one",
        "events: tree a2a, N = 256",
        {"sim.network.coflow.active.ActiveCoflow.remainder": lambda *_: None},
        "sim.network.network.Network.resume",
        _anchor("events", "tree a2a", 32),
    ),
    FastPath(
        "shared links are solved once for the same sizes",
        "events: stride, N = 256",
        {f"{_COFLOW}.Coflow.durations_ps": _solved_anew},
        f"{_COFLOW}.Coflow._shared_ps",
        _anchor("events", "stride", 32),
    ),
    FastPath(
        "messages alone are timed once for one size",
        "events: sw, N = 1024",
        {f"{_COFLOW}.Coflow._alone_ps": _alone_anew},
        f"{_COFLOW}.transfer_ps",
        _ring("events", 32, MIB),
    ),
    FastPath(
        "messages out of step are numbers",
        "events: stride, N = 256, jitter",
        {"collectives.timing.simulation.goes_out_of_step": _no},
        "sim.network.network.Network._start",
        _ring("events", 32, MIB, conditions=[Jitter("1us")]),
    ),
    FastPath(
        "many ranks of a row are a mask",
        "events: sw, N = 1024, 43109 bytes",
        {f"{_ENGINES}.row_execution.MANY": 2**62},
        f"{_ENGINES}.row_execution._RowsByRank.add",
        _ring("events", 128, 128 * 3 - 20),
        _listed,
    ),
    FastPath(
        "rotations are formulas (RankArray)",
        "makespan: sw, N = 16384",
        {"collectives.program.program.RankArray": np.arange},
        f"{_ROWS}.Pattern._sizes",
        _ring("makespan", 32, _UNEVEN),
    ),
    FastPath(
        "chunks are worked out when asked for (Deferred)",
        "makespan: H-hier, N = 4096",
        {"collectives.program.rank_array.Deferred.__init__": _at_once},
        "collectives.program.rank_array.Deferred.__array__",
        _anchor("makespan", "H-hier", 128),
    ),
    FastPath(
        "rows of one kind are gone through once",
        "makespan: sw, N = 4096",
        {f"{_ENGINES}.repeated_rows.repeated_rows": _nothing},
        f"{_ROWS}.Pattern.nbytes",
        _ring("makespan", 32, MIB),
    ),
    FastPath(
        "rows in a steady state are one sum",
        "makespan: sw, N = 4096",
        {f"{_ENGINES}.coflow_times.CoflowTimes.advance_repeatedly": _one_by_one},
        f"{_ENGINES}.coflow_times.CoflowTimes.advance",
        _ring("makespan", 32, MIB),
    ),
    FastPath(
        "sizes of a slice are kept",
        "makespan: all-gather in 8 channels, N = 256, does not divide",
        {f"{_ROWS}.place_of": _nothing, f"{_ENGINES}.repeated_rows.place_of": _nothing},
        f"{_ROWS}.Pattern._sizes",
        lambda: (
            simulate(
                "ring:channels=8",
                nbytes=MIB + 48,
                collective="all_gather",
                topology=nodes(16, 8),
                engine="makespan",
            ).time_ps
        ),
    ),
    FastPath(
        "most sizes are one number (MostlyEqual)",
        _NOT_EVEN,
        {f"{_ROWS}.Pattern._few_sizes": _nothing},
        f"{_ENGINES}.coflow_times.CoflowTimes._ends_of_all",
        _ring("makespan", 32, _UNEVEN),
    ),
    FastPath(
        "who sends less waits for the others",
        _NOT_EVEN,
        {f"{_ENGINES}.coflow_times.CoflowTimes._all_wait_for_usual": _no},
        f"{_ENGINES}.coflow_times.CoflowTimes._through",
        _ring("makespan", 32, _UNEVEN),
    ),
    FastPath(
        "one size is solved once",
        _NOT_EVEN,
        {
            f"{_ENGINES}.coflow_times.CoflowTimes._of_one_size": _forgetful(
                CoflowTimes._of_one_size, "_one_size", "_solved"
            )
        },
        f"{_COFLOW}.Coflow.durations_ps",
        _ring("makespan", 32, _UNEVEN),
    ),
    FastPath(
        "sizes, and so times, turn (Rotating)",
        "makespan: sw, N = 1024, 11691 bytes",
        {f"{_ROWS}.Pattern._rotating": _nothing, f"{_ENGINES}.coflow_times.CoflowTimes._all_alike": False},
        f"{_ROWS}.Pattern._sizes",
        _ring("makespan", 64, _TINY),
    ),
    FastPath(
        "empty messages are masked",
        "makespan: sw, N = 1024, 1063 bytes",
        {f"{_ENGINES}.coflow_times.CoflowTimes.is_permutation": False},
        f"{_ENGINES}.coflow_times.CoflowTimes.select",
        _ring("makespan", 64, _TINY),
    ),
]


def run_here(path: FastPath, off: bool) -> tuple[float, int | None]:
    """Return the processor time of the row of *path* in this process, and its picoseconds."""
    case = every_case()[path.row]
    with path.switched(off):
        began = time.process_time()
        time_ps = case.run()
        return time.process_time() - began, time_ps


def measure(number: int) -> tuple[float, float]:
    """Return the seconds that the row of a fast path takes with it and without it.

    Raises:
        SystemExit: without it the result is another.
    """
    path = FAST_PATHS[number]
    taken: dict[bool, list[float]] = {False: [], True: []}
    found: set[int | None] = set()
    for _ in range(REPEATS):
        for off, times in taken.items():
            command = [sys.executable, __file__, "--run", str(number), *(["--off"] if off else [])]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            cpu_seconds, time_ps = json.loads(done.stdout)
            times.append(cpu_seconds)
            found.add(time_ps)
    if len(found) != 1:
        raise SystemExit(f"{path.name}: {path.row} takes {found} ps with it or without it; expected one time")
    return min(taken[False]), min(taken[True])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--path", default="", metavar="TEXT", help="only paths with this in their name")
    parser.add_argument("--run", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--off", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run is not None:
        print(json.dumps(run_here(FAST_PATHS[given.run], given.off)))
        return
    print("| fast path | row | with | without | times |\n|---|---|---:|---:|---:|")
    for number, path in enumerate(FAST_PATHS):
        if given.path in path.name:
            on, off = measure(number)
            cells = path.name, path.row, seconds(on), seconds(off), f"{off / on:.1f}"
            print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
