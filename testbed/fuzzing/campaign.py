"""Campaign: batches of seeds on all cores, and a tally of what came of them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Protocol

from testbed.errors import INTERRUPTED, LaunchError
from testbed.tasks.spread import results

MOST_VIOLATIONS = 5
"""Violations after which no more seeds are tried."""


@dataclass(frozen=True)
class Judged:
    """A draw, and what was found wrong with it.

    Attributes:
        draw: what was carried out.
        violations: by name of the oracle, what is wrong.
        ended: in a word: ``finished``, ``refused`` or the class of the error.
        refusal: why the script or the program declined to run, also without faults.
        test: repeats it under pytest; empty but of the smallest violation.
    """

    draw: Any
    violations: dict[str, str]
    ended: str
    refusal: str = ""
    test: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON types."""
        own = {"draw": self.draw.to_json(), "violations": self.violations, "ended": self.ended}
        return own | ({"test": self.test} if self.test else {})


class Subject(Protocol):
    """What is tried: a script, or programs."""

    @property
    def batch_size(self) -> int:
        """How many runs are worth handing to another process."""

    @property
    def modules(self) -> tuple[str, ...]:
        """What a process imports that judges runs."""

    def judge_batch(self, seeds: Sequence[int]) -> Tally:
        """Carry out and judge what *seeds* mean."""

    def shrunk(self, judged: Judged) -> Judged:
        """Return the smallest violation found from *judged* on, with its test."""


@dataclass
class Tally:
    """What came of some seeds.

    Attributes:
        endings: how many runs ended how.
        violated: the runs with violations, by seed.
        refusals: why runs were declined, if any were.
        lost: which seeds were not judged, and why.
        seconds: of real time.
        stopped: why not all seeds were tried; empty if they were.
        interrupted: by what, where that was Ctrl-C or SIGTERM.
    """

    endings: Counter[str] = field(default_factory=Counter)
    violated: list[Judged] = field(default_factory=list)
    refusals: dict[str, None] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)
    seconds: float = 0.0
    stopped: str = ""
    interrupted: KeyboardInterrupt | None = None

    @classmethod
    def of(cls, runs: Iterable[Judged]) -> Tally:
        """Return what came of *runs*."""
        tally = cls()
        for judged in runs:
            tally.endings[judged.ended] += 1
            if judged.refusal:
                tally.refusals.setdefault(judged.refusal)
            if judged.violations:
                tally.violated.append(judged)
        return tally

    @property
    def runs(self) -> int:
        """How many seeds were tried."""
        return self.endings.total()

    @property
    def checked(self) -> int:
        """How many runs were held to something: all but those that were declined."""
        return self.runs - self.endings["refused"]

    @property
    def exit_code(self) -> int:
        """Of a command: 0 only where something was checked, all of it, and nothing was wrong."""
        if self.interrupted is not None:
            return INTERRUPTED
        return int(bool(self.violated or self.lost or not self.checked))

    @property
    def rate(self) -> float:
        """Runs per second of real time."""
        return self.runs / self.seconds if self.seconds else 0.0

    def add(self, batch: Tally) -> None:
        """Count what came of other seeds."""
        self.endings += batch.endings
        self.violated = sorted([*self.violated, *batch.violated], key=lambda own: own.draw.seed)
        self.refusals |= batch.refusals
        self.lost += batch.lost


def explore(
    judge_batch: Callable[[Sequence[int]], Tally],
    seeds: range,
    *,
    batch_size: int,
    time_limit: float | None,
    workers: int | None,
    scheduler: str | None,
    watch: Callable[[Tally], None],
    modules: Sequence[str] = (),
) -> Tally:
    """Judge *seeds*, in batches, until all are, time is up, enough is wrong, a cluster fails, or a signal.

    Args:
        judge_batch: carries out and judges some seeds, in any process.
        seeds: to be tried.
        batch_size: how many at once.
        time_limit: seconds after which no more are handed out; None: no limit.
        workers: processes; None: one for each core (see `testbed.tasks`).
        scheduler: address of a Dask scheduler to be taken instead.
        watch: called with the tally after every batch.
        modules: that *judge_batch* imports, which workers find imported.

    Raises:
        LaunchError: the cluster has failed before anything was judged.
    """
    tally = Tally()
    began = time.monotonic()

    def batches() -> Iterator[Sequence[int]]:
        for first in range(seeds.start, seeds.stop, batch_size):
            if time_limit is not None and time.monotonic() - began >= time_limit:
                tally.stopped = f"the time limit of {time_limit:g} s was reached"
                return
            if len(tally.violated) >= MOST_VIOLATIONS:
                tally.stopped = f"{len(tally.violated)} violations are enough"
                return
            yield range(first, min(first + batch_size, seeds.stop))

    try:
        with closing(
            results(judge_batch, batches(), workers=workers, scheduler=scheduler, lost=_lost, modules=modules)
        ) as found:
            for batch in found:
                tally.add(batch)
                tally.seconds = time.monotonic() - began
                watch(tally)
    except KeyboardInterrupt as interrupt:
        tally.stopped, tally.interrupted = "interrupted", interrupt
    except LaunchError as error:
        if not tally.runs:
            raise
        tally.stopped = f"{error}"
        tally.lost.append("seeds that were not tried")
    tally.seconds = time.monotonic() - began
    return tally


def _lost(seeds: Sequence[int], said: str) -> Tally:
    """Return what is known of *seeds* at which processes died."""
    return Tally(lost=[f"seeds {seeds[0]} to {seeds[-1]}: {said}"])
