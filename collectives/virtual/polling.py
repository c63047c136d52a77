"""Polling of works by a script: who asks over and over whether a work is completed, waits for it.

Asking takes no virtual time, so a loop that does nothing else would never see the work done.  After a
thousand answers of no at one instant, each further one lets time pass: a microsecond, or a sixteenth of
what has been waited so, whichever is longer.  After half an hour, torch's time-out, it is an error.

Where our own code asks, as DDP does at hooks, nothing changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from collectives.errors import CollectiveTimeoutError
from collectives.torch_backend.work import CollectiveWork
from collectives.virtual.isolation.patching import replaced
from collectives.virtual.script_clock import let_pass
from collectives.virtual.streams.gpu import current_gpu
from sim.cluster import RankThread, current_rank_thread
from sim.units import SECOND, format_time

_PATIENCE = 1000  # answers of no at one instant, before who asks is taken to wait
_LEAST_PS = SECOND // 10**6
_SHARE = 16
_LONGEST_PS = 30 * 60 * SECOND


@dataclass
class _Polling:
    """How long a rank has done nothing but ask.

    Attributes:
        at_ps: when it asked last.
        answers: of no, in a row.
        waited_ps: how long it has waited by asking.
    """

    at_ps: int = -1
    answers: int = 0
    waited_ps: int = 0

    def denied(self, rank_thread: RankThread, what: object) -> bool:
        """Note an answer of no, and let time pass if it is time; return whether it has passed.

        Raises:
            CollectiveTimeoutError: the rank has asked for half an hour.
        """
        gpu = current_gpu()
        now_ps = rank_thread.now_ps() if gpu is None else gpu.now_ps()
        if now_ps != self.at_ps:
            self.answers = self.waited_ps = 0
        self.at_ps, self.answers = now_ps, self.answers + 1
        if self.answers < _PATIENCE:
            return False
        if self.waited_ps >= _LONGEST_PS:
            raise CollectiveTimeoutError(
                f"rank {rank_thread.rank} has asked for {format_time(self.waited_ps)} of virtual time "
                f"whether {what} is completed, and done nothing else; it is not"
            )
        passing_ps = max(_LEAST_PS, self.waited_ps // _SHARE)
        let_pass(rank_thread, passing_ps, "poll")
        self.waited_ps += passing_ps
        self.at_ps = rank_thread.now_ps() if gpu is None else gpu.now_ps()
        return True


@contextmanager
def polls_take_time() -> Iterator[None]:
    """Let scripts on rank threads wait by asking, meanwhile."""
    original = CollectiveWork.is_completed
    rank_threads: WeakKeyDictionary[RankThread, _Polling] = WeakKeyDictionary()
    with replaced([(CollectiveWork, "is_completed", _asked(original, rank_threads))]):
        yield


def _asked(
    original: Callable[[CollectiveWork], bool], rank_threads: WeakKeyDictionary[RankThread, _Polling]
) -> Callable[[CollectiveWork], bool]:
    def is_completed(work: CollectiveWork) -> bool:
        """Return whether the result is in place, after advancing what can be advanced."""
        rank_thread = current_rank_thread()
        if original(work):
            return True
        if rank_thread is None:
            return False
        polling = rank_threads.setdefault(rank_thread, _Polling())
        return polling.denied(rank_thread, _spell(work)) and original(work)

    return is_completed


def _spell(work: Any) -> str:
    calls = [str(own.call) for own in work._works if hasattr(own, "call")]
    return ", ".join(calls) or "a work"
