"""Campaign: batches of seeds on all cores, a tally of what came of them, and the result that says so."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Protocol

from testbed.errors import INTERRUPTED, LaunchError
from testbed.output.table import counted
from testbed.result import Part, Result, Rows, Text, asked, found, warning
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


MODEL = (
    "a run for each seed, with what it draws, in virtual time, beside the same run without faults; "
    "computation takes no time unless --compute says so"
)

COLUMNS = (*asked("ended"), *found("runs", "meaning"))

_MEANING = {
    "finished": "ended as without faults",
    "RankError": "ended in an error on a rank",
    "DeadlockError": "ended in a verdict on who waits for whom",
    "LinkFailedError": "ended with the messages named that were lost with a link",
    "waits for the dead": "ended with ranks that wait for one that was killed",
    "refused": "declined by the script or the program",
}


def fuzzing_result(what: str, tally: Tally, smallest: Judged | None) -> Result:
    """Return what came of a campaign.

    Args:
        what: the script or the programs.
        tally: what came of its runs.
        smallest: the first violation, made as small as it stays wrong.
    """
    rows = ((ended, number, _meaning(ended)) for ended, number in tally.endings.most_common())
    said: list[list[str]] = []
    if smallest is not None:
        heading = f"seed {smallest.draw.seed}, made as small as it stays wrong, for pytest:"
        said = [[heading], [smallest.test.removesuffix("\n")]]
    return Result(
        question=f"What goes wrong with {what} under faults and orders of events that are drawn from seeds?",
        answer=_answer(tally),
        method="simulated",
        model=MODEL,
        rows=Rows.of(COLUMNS, rows),
        asked=("what",),
        body={"what": what, **_as_json(tally), "smallest": None if smallest is None else smallest.to_json()},
        parts=[*_tally_parts(what, tally), *map(_violation, tally.violated), *map(Text, said)],
        failure="" if tally.exit_code else None,
    )


def _answer(tally: Tally) -> str:
    """Return in a sentence what came of a campaign."""
    if not tally.checked:
        return "Nothing was checked."
    runs = counted(tally.checked, "run")
    lost = ", and some seeds were not judged" if tally.lost else ""
    if tally.violated:
        seeds = ", ".join(str(judged.draw.seed) for judged in tally.violated)
        return f"{counted(len(tally.violated), 'violation')} in {runs}, of seeds {seeds}{lost}."
    return f"Nothing goes wrong in {runs}{lost}."


def _tally_parts(what: str, tally: Tally) -> Iterator[Part]:
    """Yield how many runs ended how."""
    lines = [f"{counted(tally.runs, 'run')} of {what} in {tally.seconds:.1f} s, {tally.rate:.1f} per second"]
    lines += [f"  {number:>9} {_meaning(ended)}" for ended, number in tally.endings.most_common()]
    lines += [f"            {reason.splitlines()[0]}" for reason in tally.refusals]
    yield Text(lines)
    yield warning(*(f"  not judged: {seeds}" for seeds in tally.lost), gap=False)
    if tally.stopped:
        yield Text([f"Stopped: {tally.stopped}."], gap=False)
    if not tally.checked:
        yield warning("Nothing was checked.", gap=False)
    elif tally.violated:
        yield warning(counted(len(tally.violated), "violation"), gap=False)
    else:
        yield Text(["0 violations"], gap=False)


def _meaning(ended: str) -> str:
    return _MEANING.get(ended, f"ended in {ended}")


def _violation(judged: Judged) -> Text:
    """Return what is wrong with one run, and how it is repeated."""
    lines = [f"  {oracle}: {wrong}" for oracle, wrong in judged.violations.items()]
    for name, value in judged.draw.to_json().items():
        if name == "faults":
            lines += [f"  fault        {fault}" for fault in value]
        elif name != "seed" and value is not None:
            lines.append(f"  {name:<12} {value}")
    return Text(lines, title=f"seed {judged.draw.seed}:")


def _as_json(tally: Tally) -> dict[str, Any]:
    """Return the tally as JSON types."""
    return {
        "runs": tally.runs,
        "checked": tally.checked,
        "seconds": tally.seconds,
        "runs_per_second": tally.rate,
        "endings": dict(tally.endings),
        "refusals": list(tally.refusals),
        "lost": tally.lost,
        "stopped": tally.stopped or None,
        "violations": [judged.to_json() for judged in tally.violated],
    }
