"""Threads of groups: two threads of a rank that call one process group, and nothing says who is first.

Ranks match calls of a group by their order, so threads that call it at once may match otherwise on each rank;
NCCL's communicators may not be used by two threads at all.  A run takes one order of the threads, always the
same.  Calls are compared by happens-before (`collectives.virtual.isolation.turns`).

Source: NCCL user guide, "Thread Safety".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator

from collectives.execution.blame import spell_ranks
from collectives.virtual.diagnosis.watched_calls import WatchedCall
from collectives.virtual.isolation.turns import OwnThread, OwnThreads


class ThreadsOfGroups:
    """Compares the calls of the threads of each rank of one run."""

    def __init__(self) -> None:
        self._last: defaultdict[Hashable, dict[OwnThread, tuple[int, str]]] = defaultdict(dict)
        self._found: defaultdict[tuple[str, str], set[int]] = defaultdict(set)

    def mistakes(self) -> Iterator[str]:
        """Yield what was found, with the ranks that did it."""
        for (place, what), ranks in self._found.items():
            yield f"{place}: {spell_ranks(ranks)}: {what}"

    def began(self, call: WatchedCall) -> None:
        """Compare *call* with the last ones that other threads of the rank have made of its group."""
        rank = call.rank_thread.rank
        threads: OwnThreads | None = call.rank_thread.cluster.shared.get(OwnThreads, {}).get(rank)
        here = None if threads is None else threads.running
        if here is None:
            return
        last = self._last[rank, call.key, call.device_type("")]
        for other, (count, says) in last.items():
            if other is not here and not here.comes_after(other, count):
                what = (
                    f"one thread calls {call.operation} of a group here and another {says}, and nothing says "
                    "which comes first, so ranks may match them otherwise; let one wait for the other, or "
                    "give each a group of its own"
                )
                self._found[call.place, what].add(rank)
                break
        for other in [other for other, (count, _) in last.items() if here.comes_after(other, count)]:
            del last[other]  # who comes after this call comes after that one, too
        last[here] = here.count, f"{call.operation} at {call.place}"
