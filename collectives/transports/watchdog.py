"""Watchdog over long waits: when another rank has failed, it ends this rank's wait too.

A rank that waits for the culprit itself would otherwise learn of the failure only when its own
time is up, which may be long after the others have judged; and they would miss its report.  The
watchdog is a thread that sleeps.  It asks the store only while a wait lasts longer than an interval.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from functools import partial

from collectives.transports.background import ENDING, start_aside


class Watchdog:
    """A context manager around every wait of one communicator, by any of a rank's threads.

    Args:
        any_failed: asks the store whether a rank has failed; raises RuntimeError if it is lost.
        break_off: ends the wait.
        interval: seconds between two looks.

    Attributes:
        has_ended_it: whether it has ended a wait.
    """

    def __init__(
        self, any_failed: Callable[[], bool], break_off: Callable[[], None], interval: float
    ) -> None:
        self.any_failed = any_failed
        self.break_off = break_off
        self.interval = interval
        self.has_ended_it = False
        self.since: float | None = None
        self._lock = threading.Lock()
        self._num_waits = 0
        self.thread: threading.Thread | None = None

    def __enter__(self) -> None:
        with self._lock:
            if self.thread is None:
                self.thread = start_aside(partial(_keep, weakref.ref(self), self.interval), "watchdog")
            if not self._num_waits:
                self.since = time.monotonic()
            self._num_waits += 1

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._num_waits -= 1
            if not self._num_waits:
                self.since = None

    def look(self) -> bool:
        """End a wait that has lasted long if another rank has failed; return whether to go on watching."""
        since = self.since
        if since is None or time.monotonic() - since < self.interval:
            return True
        try:
            failed = self.any_failed()
        except RuntimeError:
            return False
        if failed:
            self.has_ended_it = True
            self.break_off()
        return not failed


def _keep(reference: weakref.ref[Watchdog], interval: float) -> None:
    while not ENDING.wait(interval):
        watchdog = reference()
        if watchdog is None or not watchdog.look():
            return
        del watchdog
