"""Turn: the right to touch what is in flight in one queue, which one thread has at a time.

A rank may have several threads that call: one that trains, one that writes checkpoints, one that evaluates.
Whoever has the turn starts, advances and completes executions.  While it blocks, until a message comes, it
gives the turn away, so what it waits for is never touched by two, and nobody waits for a thread that waits.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sized
from typing import Any

from collectives.errors import NotSupportedError


class Turn:
    """The turn of one queue; a context manager around what needs it, with which every call begins.

    To enter it raises NotSupportedError in a child that was forked from the process in which it was made.

    Args:
        waiting: the threads of this rank that wait for something, in this queue or another.

    Attributes:
        acquire: takes it, or with ``blocking=False`` says whether it could; in the home process alone.
        release: leaves it.
        changed: notified when a thread leaves what others wait for.
        given_away: a context manager around what a thread that has the turn blocks in.
    """

    def __init__(self, waiting: Sized = ()) -> None:
        lock = threading.RLock()
        self.acquire = lock.acquire
        self.release = lock.release
        self._waiting = waiting
        self._check_home = HomeProcess().check
        self.changed = threading.Condition(lock)
        self.given_away = _GivenAway(lock)

    @property
    def is_crowded(self) -> bool:
        """Whether several threads of this rank wait, so that none had better keep the processor."""
        return len(self._waiting) > 1

    def __enter__(self) -> bool:
        self._check_home()
        return self.acquire()

    def __exit__(self, *exception: object) -> None:
        self.release()


class HomeProcess:
    """The process that makes this, in which a rank was made: the only one that may speak for it.

    A child that is forked afterwards has a copy of all that a rank calls by: memory that it shares with the
    other ranks, sockets, a place in the queues.  Were it to make a call, the others would take it for the
    rank, whose own calls would then be one behind; over Gloo, whose threads are not copied, it would be
    aborted.
    """

    def __init__(self) -> None:
        self.number = os.getpid()

    def check(self) -> None:
        """Check that this is still that process, before anything is done that others would see.

        Raises:
            NotSupportedError: it is a child that was forked from it.
        """
        if os.getpid() != self.number:
            raise NotSupportedError(
                f"process {os.getpid()} was forked from process {self.number}, a rank whose group had been "
                "made, and is no rank itself: make the call in the parent, or give the child a group of its "
                "own by starting it before init_process_group, or with the method 'spawn'"
            )


class _GivenAway:
    """A context manager in which a lock that is held is not."""

    def __init__(self, lock: Any) -> None:
        self._release = lock.release
        self._acquire = lock.acquire

    def __enter__(self) -> None:
        self._release()

    def __exit__(self, *exception: object) -> None:
        self._acquire()
