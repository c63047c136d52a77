"""The ranks' reports after a failure, exchanged through the group's store.

Nothing is written as long as all goes well.  When a collective fails on a rank it publishes what
it was doing, gives the others a moment to do the same, and raises what all reports together say.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from torch._C._distributed_c10d import Store

from collectives.call import Report, diagnose
from collectives.errors import CollectiveError

GRACE_SECONDS = 3.0
"""How long a failed rank waits for the reports of the others."""

_POLL_SECONDS = 0.05


class StoreReports:
    """Reports of the ranks of one communicator.

    Args:
        store: shared by all ranks.
        prefix: of the keys, equal on all ranks and unlike that of any other communicator.
        rank: this rank.
        world_size: number of ranks.
    """

    def __init__(self, store: Store, prefix: str, rank: int, world_size: int) -> None:
        self.store = store
        self.prefix = prefix
        self.rank = rank
        self.world_size = world_size

    def explain(self, report: Report, error: Exception) -> CollectiveError:
        """Return the error that says which rank is to blame for the failure of *report*'s call."""
        reports: dict[int, Report | None] = dict.fromkeys(range(self.world_size))
        reports[self.rank] = report
        cause = _first_line(error)
        try:
            self.store.set(self._key(self.rank), report.to_json())
            self._collect(reports)
        except (RuntimeError, ValueError) as lost:
            cause += f" (and the store cannot be reached: {_first_line(lost)})"
        return diagnose(self.rank, report, reports, cause)

    def _collect(self, reports: dict[int, Report | None]) -> None:
        deadline = time.monotonic() + GRACE_SECONDS
        missing = [rank for rank, report in reports.items() if report is None]
        while missing:
            for rank in missing:
                if self.store.check([self._key(rank)]):
                    reports[rank] = Report.from_json(self.store.get(self._key(rank)).decode())
            missing = [rank for rank in missing if reports[rank] is None]
            if time.monotonic() > deadline:
                return
            time.sleep(_POLL_SECONDS)

    def _key(self, rank: int) -> str:
        return f"{self.prefix}/report/{rank}"


Explain = Callable[[Report, Exception], CollectiveError]


def _first_line(error: Exception) -> str:
    """Return what *error* says in its first sentence, without the source location in front of Gloo's."""
    text = str(error).splitlines()[0].partition(". ")[0] if str(error) else type(error).__name__
    text = text.rpartition("] ")[2] if text.startswith("[") else text
    return f"failed: {text}"
