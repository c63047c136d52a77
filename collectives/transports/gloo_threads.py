"""Threads of Gloo, kept from interrupting whoever holds the lock that they need.

Gloo has a thread that handles the events of its sockets (``Loop::run`` of gloo/transport/tcp/loop.cc).  Where
it cannot have the lock of a connection at once, because somebody is posting a message there, it asks for
events again without a pause (``Pair::handleEvents`` of gloo/transport/tcp/pair.cc).  Linux lets a thread
that wakes interrupt another.  If that is the one that holds the lock, the first spins until its time slice is
over: some 4 ms, for a message that takes 100 µs.

A thread of the policy SCHED_BATCH interrupts nobody (sched(7)).  It runs on a processor that is free, or as
soon as the others wait.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_TASKS = Path("/proc/self/task")
_NAME = "gloo_tcp_loop"


def interrupt_nobody() -> None:
    """Let the threads of this process that handle events of Gloo interrupt no others, where that can be had.

    Threads that somebody has given a policy keep it.
    """
    if not hasattr(os, "SCHED_BATCH") or not _TASKS.is_dir():
        return
    for task in _TASKS.iterdir():
        with suppress(OSError):  # a thread that has ended meanwhile, or policies that may not be set
            number = int(task.name)
            ours = (task / "comm").read_text().strip() == _NAME
            if ours and os.sched_getscheduler(number) == os.SCHED_OTHER:
                os.sched_setscheduler(number, os.SCHED_BATCH, os.sched_param(0))
