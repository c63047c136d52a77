"""Reports of the ranks after a failure, collected through the group's store.

Nothing is written as long as all goes well.  When a collective fails on a rank it publishes what
it was doing, closes its connections, so that whoever waits for it fails at once and does the same,
gives the others a moment, and raises what all reports together say.  The first rank to come to
a verdict publishes that as well, and the others adopt it, so that all say the same.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping

from torch._C._distributed_c10d import Store

from collectives.errors import CollectiveError, CollectiveTimeoutError, MismatchError
from collectives.execution.blame import Report, Verdict, diagnose, judge
from collectives.transports.background import ENDING, start_aside

_POLL_SECONDS = 0.02
_MAX_GRACE_SECONDS = 3.0
_STORE_SECONDS = 1.0  # beyond the grace, for a store that is slow but answers

Explain = Callable[[Report, Exception, float], CollectiveError]
"""Returns the error to raise for a failure; see `StoreReports.explain`."""


def grace(timeout: float | None) -> float:
    """Return how many of the *timeout* seconds of a wait are kept for asking the other ranks."""
    return _MAX_GRACE_SECONDS if timeout is None else min(_MAX_GRACE_SECONDS, timeout / 4)


class StoreReports:
    """Reports of the ranks of one communicator.

    Args:
        store: shared by all ranks.
        prefix: of the keys, equal on all ranks and unlike that of any other communicator.
        rank: this rank.
        world_size: number of ranks.
        break_off: ends the waits of this rank, and of those that wait for it.

    Attributes:
        gone: ranks that are known to be gone, with what became of each, asked for when a failure is noticed:
            nobody waits for their reports.  Who leaves later may have left because of the failure.
    """

    def __init__(
        self,
        store: Store,
        prefix: str,
        rank: int,
        world_size: int,
        break_off: Callable[[], None] = lambda: None,
    ) -> None:
        self.store = store
        self.prefix = prefix
        self.rank = rank
        self.world_size = world_size
        self.break_off = break_off
        self.gone: Callable[[], Mapping[int, str]] = dict

    def explain(self, report: Report, error: Exception, seconds: float) -> CollectiveError:
        """Return the error that says which rank is to blame for the failure of *report*'s call.

        The others have *seconds* to report.  The store is asked on a thread, as it does not answer
        when its host is stalled.
        """
        collection = _Collection(self, report, time.monotonic() + seconds)
        thread = start_aside(collection.run, "reports")
        self.break_off()
        thread.join(seconds)
        if collection.heard:
            thread.join(_STORE_SECONDS)
        cause = f"failed: {_first_line(error)}"
        if collection.verdict is not None or collection.heard:
            reports = dict(collection.reports)
            verdict = collection.verdict or judge(reports, collection.silent())
            return diagnose(self.rank, report, reports, cause, verdict)
        unknown = Verdict(
            CollectiveTimeoutError,
            f"the other ranks cannot be asked, as the group's store {collection.trouble}: the process that "
            "hosts it was killed or is stalled; that is rank 0, unless a launcher hosts the store",
        )
        return diagnose(self.rank, report, {self.rank: report}, cause, unknown)

    def any_failed(self) -> bool:
        """Return whether a rank has published a failure."""
        return self.store.check([self._key("failed")])

    def _publish(self, report: Report) -> None:
        self.store.set(self._key(self.rank), report.to_json())
        self.store.set(self._key("failed"), "")

    def _read(self, rank: int) -> Report | None:
        key = self._key(rank)
        return Report.from_json(self.store.get(key).decode()) if self.store.check([key]) else None

    def _judged(self) -> bool:
        return self.store.check([self._key("verdict")])

    def _agree(self, verdict: Verdict) -> Verdict:
        """Return the verdict of the rank that came to one first."""
        text = json.dumps([verdict.kind.__name__, verdict.text])
        kind, text = json.loads(self.store.compare_set(self._key("verdict"), "", text).decode())
        return Verdict(MismatchError if kind == MismatchError.__name__ else CollectiveTimeoutError, text)

    def _key(self, name: object) -> str:
        return f"{self.prefix}/report/{name}"


class _Collection:
    """Publishes a report and collects those of the others until a verdict is reached."""

    def __init__(self, parent: StoreReports, report: Report, deadline: float) -> None:
        self.parent = parent
        self.deadline = deadline
        self.reports: dict[int, Report | None] = dict.fromkeys(range(parent.world_size))
        self.reports[parent.rank] = report
        self.gone = parent.gone()
        self.report = report
        self.verdict: Verdict | None = None
        self.heard = False
        self.trouble = "does not answer"

    def run(self) -> None:
        """Do so, and keep what was found, or what the trouble with the store is."""
        try:
            self.parent._publish(self.report)
            self._collect()
            is_late = time.monotonic() >= self.deadline + _STORE_SECONDS
            if not is_late and not ENDING.is_set():  # else nobody waits for it any more
                self.verdict = self.parent._agree(judge(self.reports, self.silent()))
        except (RuntimeError, ValueError) as lost:
            self.trouble = f"cannot be reached ({_first_line(lost)})"

    def _collect(self) -> None:
        while True:
            last_look = time.monotonic() > self.deadline
            last_look = self.parent._judged() or last_look
            self.heard = True
            for rank in [rank for rank, report in self.reports.items() if report is None]:
                self.reports[rank] = self.parent._read(rank)
            if last_look or all(report or rank in self.gone for rank, report in self.reports.items()):
                return
            if ENDING.wait(_POLL_SECONDS):
                return

    def silent(self) -> Mapping[int, str]:
        """Return what became of the ranks that are gone and have left no report."""
        return {rank: fate for rank, fate in self.gone.items() if self.reports[rank] is None}


def _first_line(error: Exception) -> str:
    """Return what *error* says in its first sentence, without the source location in front of Gloo's."""
    text = str(error).splitlines()[0].partition(". ")[0] if str(error) else type(error).__name__
    return text.rpartition("] ")[2] if text.startswith("[") else text
