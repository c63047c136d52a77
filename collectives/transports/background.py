"""Threads beside a rank's calls, which have left torch's code when the interpreter ends.

Python ends a thread that returns from C++ code while the interpreter shuts down by unwinding its stack.
The guards with which torch takes the interpreter's lock back do not allow that: the process then dies of
SIGABRT, "terminate called without an active exception", although its work is done.  So before the
interpreter shuts down these threads are told, and waited for.
"""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Callable

_SECONDS = 2.0  # for a thread to come back before it is released, and again afterwards

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


@atexit.register
def _end_all() -> None:
    """Wait until the threads have ended; one that cannot be released, as its store is stalled, is left."""
    ENDING.set()
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
