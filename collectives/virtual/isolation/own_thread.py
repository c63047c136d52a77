"""One of the threads of a rank: what it waits for and comes after, and whether it is outside Python."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from sim.cluster import Thing

_ASLEEP = 0.015
"""Seconds without processor time after which a sleeping thread is outside Python.

One that waits for Python's own lock wakes every 5 ms to ask for it.
"""


class OwnThread:
    """One of the threads of a rank.

    Attributes:
        awaits: returns whether it can go on; None while it runs, or can go on.
        seconds: for how long it waits; None: for ever.
        says: what it waits for in virtual time; None: it does not.
        deadline_ps: until when it does; None: for ever.
        next_thing: what its next turn touches that threads of a rank share, in an order; None: nothing.
        standstill: what `sim.cluster.scheduler.Turn.standstill` says, where that wait is over by time.
        is_over: whether it has ended.
        is_daemon: whether the rank ends without waiting for it.
        is_outside: whether it blocks outside Python, without the turn.
        is_switching: whether it gives its turn away itself, and rests until it has it again.
        thread: of Python; None: that of the rank itself, which is the first.
        count: how often it has told others how far it is.
        known: of other threads, up to which count this one comes after them.
    """

    def __init__(self, thread: threading.Thread | None = None) -> None:
        self.awaits: Callable[[], bool] | None = None
        self.seconds: float | None = None
        self.says: Callable[[], str] | None = None
        self.deadline_ps: int | None = None
        self.next_thing: Thing | None = None
        self.standstill: str | None = None
        self.is_over = self.is_outside = self.is_switching = False
        self.thread = thread
        self.is_daemon = thread is not None and thread.daemon
        self.count = 0
        self.known: dict[OwnThread, int] = {}
        self._seen: tuple[float, int] | None = None
        self._turn = threading.Lock()
        self._turn.acquire()

    def tell(self) -> dict[OwnThread, int]:
        """Return what somebody knows who comes after all that this thread has done."""
        told = {**self.known, self: self.count}
        self.count += 1
        return told

    def learn(self, told: Mapping[OwnThread, int]) -> None:
        """Let it come after what *told* says."""
        for other, count in told.items():
            if other is not self:
                self.known[other] = max(count, self.known.get(other, -1))

    def comes_after(self, other: OwnThread, count: int) -> bool:
        """Return whether it comes after what *other* did when it had that *count*."""
        return self.known.get(other, -1) >= count

    def can_go_on(self) -> bool:
        """Return whether it has something to do; what it waited for is then taken."""
        if self.is_over or self.is_outside:
            return False
        if self.awaits is not None and self.awaits():
            self.awaits = None
        return self.awaits is None or self.standstill is not None

    def stops_waiting(self) -> bool:
        """Return whether what it has waited for came; either way it waits no more."""
        came, self.awaits = self.awaits is None, None
        return came

    def give(self) -> None:
        """Let it run."""
        self._seen = None
        self._turn.release()

    def rests(self, seconds: float) -> bool:
        """Let this thread, which is the one, rest for *seconds*; return whether it was given a turn."""
        return self._turn.acquire(timeout=seconds)

    def is_blocked(self) -> bool:
        """Return whether it has slept, in the kernel and without a moment of work, since an earlier look."""
        ticks = None if self.thread is None else _ticks_asleep(self.thread.native_id)
        if ticks is None:
            self._seen = None
            return False
        now = time.monotonic()
        if self._seen is None or self._seen[1] != ticks:
            self._seen = now, ticks
        return now - self._seen[0] >= _ASLEEP


def _ticks_asleep(native_id: int | None) -> int | None:
    """Return how often a thread of this process has gone to sleep, if it sleeps; else None."""
    try:
        status = Path(f"/proc/self/task/{native_id}/status").read_text()
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in status.splitlines())
    if not fields["State"].strip().startswith("S"):
        return None
    return int(fields["voluntary_ctxt_switches"])
