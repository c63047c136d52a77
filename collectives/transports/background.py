"""Threads beside a rank's calls, which have left torch's code when the interpreter ends.

Python ends a thread that returns from C++ code while the interpreter shuts down by unwinding its stack.
The guards with which torch takes the interpreter's lock back do not allow that: the process then dies of
SIGABRT, "terminate called without an active exception", although its work is done.  So before the
interpreter shuts down these threads are told, and waited for.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable
from queue import SimpleQueue

_SECONDS = 2.0  # for a thread to come back before it is released, and again afterwards
_MAX_IDLE = 16  # threads kept for later short tasks, or a few more

ENDING = threading.Event()
"""Set when the process is about to end; threads of `start_aside` that sleep do so by waiting for it."""

_RELEASES: weakref.WeakKeyDictionary[threading.Thread, Callable[[], None]] = weakref.WeakKeyDictionary()
"""The threads of `start_aside`, and what ends their waits."""


def start_aside(
    run: Callable[[], None], name: str, release: Callable[[], None] | None = None
) -> threading.Thread:
    """Start a thread that does not keep the process alive, but is waited for when it ends.

    Args:
        run: what the thread does; it returns soon after `ENDING` is set.
        name: of the thread.
        release: ends a wait of the thread in C++ code which would otherwise last; called if the thread has
            not ended by itself.
    """
    thread = threading.Thread(target=run, name=name, daemon=True)
    _RELEASES[thread] = release or _nothing
    thread.start()
    return thread


class ShortTask:
    """Something short that a thread aside does: a thread kept from an earlier one, if there is one.

    To start a thread takes as long as several messages, and whoever starts it waits until it runs.

    Args:
        run: what is done; it raises nothing.
        release: ends a wait of *run* in C++ code which would otherwise last until the process ends.
    """

    __slots__ = ("_over", "release", "run")

    def __init__(self, run: Callable[[], None], release: Callable[[], None]) -> None:
        self.run = run
        self.release = release
        self._over = threading.Lock()
        self._over.acquire()
        try:
            worker = _IDLE.pop()
        except IndexError:
            worker = _Worker()
        worker.tasks.put(self)

    def join(self, timeout: float) -> None:
        """Return when it is done, or after *timeout* seconds."""
        if self._over.acquire(timeout=timeout):
            self._over.release()

    def end(self) -> None:
        """Let those go who wait for it."""
        self._over.release()


class _Worker:
    """A thread for one short task after another."""

    def __init__(self) -> None:
        self.tasks: SimpleQueue[ShortTask | None] = SimpleQueue()
        self._task: ShortTask | None = None
        _WORKERS.add(self)
        start_aside(self._work, "short tasks", self._release)

    def _work(self) -> None:
        while (task := self.tasks.get()) is not None:
            self._task = task
            task.run()
            self._task = None
            if is_kept := len(_IDLE) < _MAX_IDLE:
                _IDLE.append(self)
            task.end()
            if not is_kept:
                return
            del task

    def _release(self) -> None:
        if (task := self._task) is not None:
            task.release()


_WORKERS: weakref.WeakSet[_Worker] = weakref.WeakSet()

_IDLE: list[_Worker] = []
"""Those without a task."""

os.register_at_fork(after_in_child=_IDLE.clear)  # a child has none of its parent's threads


@atexit.register
def _end_all() -> None:
    """Wait until the threads have ended; one that cannot be released, as its store is stalled, is left."""
    ENDING.set()
    for worker in list(_WORKERS):
        worker.tasks.put(None)
    _join_all()
    for thread, release in list(_RELEASES.items()):
        if thread.is_alive():
            release()
    _join_all()


def _join_all() -> None:
    deadline = time.monotonic() + _SECONDS
    for thread in list(_RELEASES):
        thread.join(max(deadline - time.monotonic(), 0))


def _nothing() -> None:
    """Release nothing."""
