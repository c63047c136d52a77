"""Locks that a rank makes: its threads wait for them in turn, as for everything else."""

from __future__ import annotations

import _thread
import threading
from collections import Counter

from collectives.virtual.isolation.turns import threads_here
from sim.cluster import Cluster, Thing


class OwnLock:
    """A `threading.Lock` that is waited for as everything that threads of a rank wait for.

    Threads that are no rank's, such as those which move data of a loader's workers, have it as they do
    elsewhere; a rank really waits for them.
    """

    def __init__(self) -> None:
        rank_thread, threads = Cluster.current(), threads_here()
        assert rank_thread is not None
        made = rank_thread.cluster.shared.setdefault(OwnLock, Counter())
        maker = rank_thread.rank, 0 if threads is None else threads.place
        made[maker] += 1
        self.thing = Thing(f"a lock of rank {rank_thread.rank}", ("lock", *maker, made[maker]))
        self._lock = _thread.allocate_lock()
        self._is_a_ranks = False
        self.locked = self._lock.locked
        self._at_fork_reinit = self._lock._at_fork_reinit  # type: ignore[attr-defined]

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Return whether the thread has it now, as `threading.Lock.acquire` does."""
        threads = threads_here()
        if threads is None or threads.is_starting:
            return self._take(blocking, timeout)
        threads.may_be_overtaken(self.thing)
        if not blocking:
            return self._take(False)
        return threads.wait_until(
            lambda: self._take(False) or (not self._is_a_ranks and self._take(True, timeout)),
            None if timeout < 0 else timeout,
            self.thing,
        )

    def release(self) -> None:
        """Let another thread have it."""
        self._is_a_ranks = False
        self._lock.release()

    def _take(self, blocking: bool, timeout: float = -1) -> bool:
        taken = self._lock.acquire(blocking, timeout)
        if taken:
            self._is_a_ranks = Cluster.current() is not None
        return taken

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *raised: object) -> None:
        self.release()

    def __reduce__(self) -> str:
        raise TypeError("cannot pickle '_thread.lock' object")


class OwnRLock(threading._RLock):  # type: ignore[misc]
    """The same of a `threading.RLock`."""

    def __init__(self) -> None:
        super().__init__()
        self._block = OwnLock()
        self.thing = self._block.thing
