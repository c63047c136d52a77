"""The queues of one rank, of which each belongs to a communicator, and who attends to what nobody waits for.

Collectives have further steps, which peers may need before they come to what this rank waits for.  So whoever
waits advances what other queues have in flight, too, where nobody else does.  What another thread starts
meanwhile and leaves, nobody would advance; there, and only while somebody waits, a thread attends to it.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from typing import Protocol

from collectives.transports.background import ENDING, start_aside

PAUSE_SECONDS = 50e-6
"""Between two looks at what is in flight."""

_TICK_SECONDS = 0.001  # between two looks whether something is left alone
_QUIET_TICKS = 100  # without anything, after which the attendant leaves


class Attended(Protocol):
    """A queue, as others see it."""

    def is_left_alone(self) -> bool:
        """Return whether something is in flight that needs calls of this rank, and no thread waits for it."""

    def attend(self) -> None:
        """Advance what is in flight, unless a thread is about it."""


class RankQueues:
    """The queues of one rank.

    Attributes:
        waiting: its threads that wait for something, by number.
    """

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Have no queue, and no thread that waits or attends; so a forked child begins, too."""
        self.waiting: set[int] = set()
        self._queues: tuple[weakref.ref[Attended], ...] = ()  # never changed, but replaced
        self._lock = threading.Lock()
        self._attendant: threading.Thread | None = None
        self._is_called = False

    def add(self, queue: Attended) -> None:
        """Add *queue*, for as long as somebody has it."""
        with self._lock:
            there = (reference for reference in self._queues if reference() is not None)
            self._queues = (*there, weakref.ref(queue))

    def left_alone(self, without: Attended | None = None) -> list[Attended]:
        """Return the queues in which something is left alone, but for one."""
        there = [reference() for reference in self._queues]
        return [queue for queue in there if queue and queue is not without and queue.is_left_alone()]

    def call_attendant(self) -> None:
        """Have it seen to that nothing is left alone while threads wait."""
        with self._lock:
            self._is_called = True
            if self._attendant is None:
                self._attendant = start_aside(self._attend, "attendant of queues")

    def _attend(self) -> None:
        quiet = 0
        while not ENDING.is_set() and self._stays(quiet):
            alone = self.left_alone() if self.waiting else []
            for queue in alone:
                queue.attend()
            quiet = 0 if alone else quiet % _QUIET_TICKS + 1
            time.sleep(PAUSE_SECONDS if alone else _TICK_SECONDS)

    def _stays(self, quiet: int) -> bool:
        """Return whether the attendant stays, which has found nothing in as many ticks as *quiet*."""
        if quiet < _QUIET_TICKS:
            return True
        with self._lock:
            was_called, self._is_called = self._is_called, False
            if not was_called:
                self._attendant = None
            return was_called


QUEUES = RankQueues()
"""Those of all communicators between the processes of which this is one."""

os.register_at_fork(after_in_child=QUEUES.begin)
