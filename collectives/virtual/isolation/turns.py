"""Turns of the threads of one rank: one runs until it waits for another, and hands on to the next.

Where none can go on, the rank waits for nothing but itself, which is an error.  A wait with a time-out is
over at once where only time could end it, and takes that virtual time.

A thread that blocks outside Python (an event loop, a socket, a pipe, a process, a native queue) would keep
the turn for as long as it blocks.  So those that wait for the turn look now and then, in real time, whether
the one that has it sleeps in the kernel: `OwnThread.is_blocked`.  Then they take its turn away, and it is
*outside*.  It comes back to Python without the turn, and rests at the next function that it calls or leaves
until the turn is its own again; a profile function of the thread sees to that.  The first thread of a rank
runs without one, so it keeps its turn where it blocks: `collectives.virtual.isolation.standstill` names it.
Only Linux says whether a thread sleeps; elsewhere none is outside.

Which of two things comes first whatever the turns is known by happens-before, with a vector clock for each
thread: a thread comes after what was done before it was started, before the end that it has waited for,
before somebody else left a condition that it enters (so of events, queues, semaphores and futures), or came
to its barrier.  A plain lock orders nothing: either may have it first.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from collectives.errors import CollectiveError
from sim.cluster import RankThread
from sim.cluster.raised import settle
from sim.cluster.scheduler import RankUnwound
from sim.units import SECOND

_FIRST_LOOK, _LAST_LOOK = 0.01, 0.25
"""Seconds between two looks at the thread that has the turn: at first, and for as long as it goes on."""
_ASLEEP = 0.015
"""Seconds without processor time after which a sleeping thread is outside Python.

One that waits for Python's own lock wakes every 5 ms to ask for it.
"""


class OwnThread:
    """One of the threads of a rank.

    Attributes:
        awaits: returns whether it can go on; None while it runs, or can go on.
        seconds: for how long it waits; None: for ever.
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
        return self.awaits is None

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


class OwnThreads:
    """The threads of one rank, of which one runs.

    Attributes:
        process: that of the rank; in one forked off it, such as a loader's worker, threads are what they are.
        running: the one that runs; None while all wait, and what one outside of Python brings can end that.
        is_starting: whether it starts another, for which it really waits.
    """

    def __init__(self, rank_thread: RankThread) -> None:
        self.rank_thread = rank_thread
        self.process = os.getpid()
        self.running: OwnThread | None = OwnThread()
        self.is_starting = False
        self._all = [self.running]
        self._is_ending = False
        self._told: WeakKeyDictionary[Any, dict[OwnThread, int]] = WeakKeyDictionary()
        """What who enters a condition knows, by its lock."""
        self._lock = threading.RLock()
        """Held while it changes whose turn it is: who comes back from outside has no turn."""

    def start(
        self,
        thread: threading.Thread,
        start: Callable[[threading.Thread], None],
        surroundings: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """Start *thread*, which first runs when the one that runs now waits."""
        own, run = OwnThread(thread), thread.run
        own.learn(self._here().tell())

        def run_in_turn() -> None:
            try:
                self._rest(own)
                if not self._is_ending:
                    with surroundings():
                        settle()  # or CPython 3.11 keeps a thread with a profile function where it is
                        sys.setprofile(functools.partial(self._comes_back, own))
                        run()
            except RankUnwound:
                pass
            finally:
                sys.setprofile(None)
                self._hand_on(own)

        thread.run = run_in_turn  # type: ignore[method-assign]
        thread.own_thread = own  # type: ignore[attr-defined]
        thread._daemonic = True  # type: ignore[attr-defined]  # the process does not wait for one outside
        with self.really_waiting():
            start(thread)
        thread._daemonic = own.is_daemon  # type: ignore[attr-defined]
        self._all.append(own)

    @property
    def started(self) -> list[tuple[OwnThread, threading.Thread]]:
        """Those that the rank has started and that have not ended, with what they are in Python."""
        return [(own, own.thread) for own in self._all if own.thread is not None and not own.is_over]

    @property
    def outside(self) -> list[OwnThread]:
        """Those that are outside of Python now."""
        return [own for own in self._all if own.is_outside and not own.is_over]

    @contextmanager
    def really_waiting(self) -> Iterator[None]:
        """Let the thread that runs really wait while the body runs, for one that has begun."""
        self.is_starting = True
        try:
            yield
        finally:
            self.is_starting = False

    def wait_until(self, comes: Callable[[], bool], seconds: float | None = None) -> bool:
        """Let other threads of the rank run until *comes* is true; return whether it is.

        Where only time could end the wait, it takes *seconds* of virtual time, if they are given.  While a
        thread is outside of Python, so many of real time pass first.

        Raises:
            CollectiveError: no thread of the rank can go on.
        """
        here = self._here()
        if comes():
            return True
        here.awaits, here.seconds = comes, seconds
        self._switch(here, self._after(here))
        if here.stops_waiting():
            return True
        if seconds is None:
            raise CollectiveError(
                f"rank {self.rank_thread.rank}: every thread of this rank waits for another of its threads, "
                "so none will ever go on"
            )
        self.rank_thread.charge_ps(max(0, round(seconds * SECOND)))
        return comes()

    def ended(self, own: OwnThread) -> None:
        """Let the thread that runs come after *own*, which has ended."""
        self._here().learn(own.tell())

    def entered(self, lock: object) -> None:
        """Let the thread that runs come after all who have left a condition of *lock*."""
        if self.running is not None and type(lock).__weakrefoffset__:
            self.running.learn(self._told.get(lock, {}))

    def left(self, lock: object) -> None:
        """Let who enters a condition of *lock* come after the thread that runs."""
        if self.running is not None and type(lock).__weakrefoffset__:  # few locks of a script's own have none
            self._told[lock] = self.running.tell()

    def let_others_run(self) -> None:
        """Let the next thread of the rank that can go on do so before this one goes on."""
        here = self._here()
        self._switch(here, self._next(here))

    def end(self, succeeded: bool) -> None:
        """End all threads but the first, which this is; if the rank *succeeded*, daemons alone at once.

        Those outside of Python are left there, and end when they come back.
        """
        here, others = self._all[0], self._all[1:]
        if succeeded:
            self.wait_until(lambda: all(own.is_over or own.is_daemon for own in others))
        self._is_ending = True
        for own in others:
            while not own.is_over and not own.is_outside:
                self._give(own)
                self._rest(here)

    def _here(self) -> OwnThread:
        """Return the thread that runs, which this is."""
        assert self.running is not None
        return self.running

    def _next(self, here: OwnThread) -> OwnThread | None:
        """Return the next thread after *here* that can go on, or else whose wait ends first.

        While a thread is outside of Python, time alone does not end a wait.
        """
        place = self._all.index(here)
        in_order = [*self._all[place + 1 :], *self._all[: place + 1]]
        for own in in_order:
            if own.can_go_on():
                return own
        if self.outside:
            return None
        timed = [own for own in in_order if own.awaits is not None and own.seconds is not None]
        return min(timed, key=lambda own: own.seconds or 0.0, default=None)

    def _after(self, here: OwnThread) -> OwnThread | None:
        """Return who runs when *here* cannot: if none can, the first, which says so; None: nobody for now."""
        return self._next(here) or (None if self.outside else self._all[0])

    def _give(self, own: OwnThread | None) -> None:
        with self._lock:
            self.running = own
            if own is not None:
                own.give()

    def _switch(self, here: OwnThread, other: OwnThread | None) -> None:
        if other is here:
            return
        here.is_switching = True
        self._give(other)
        self._rest(here)
        here.is_switching = False
        if self._is_ending:
            raise RankUnwound
        self.rank_thread.check_thread()

    def _rest(self, here: OwnThread) -> None:
        """Let *here*, this thread, rest until it has the turn."""
        seconds, began = _FIRST_LOOK, time.monotonic()
        while not here.rests(seconds):
            seconds = min(2 * seconds, _LAST_LOOK)
            with self._lock:
                running = self.running
                if self.rank_thread.is_waiting:
                    continue
                if running is not None and running.is_blocked():
                    running.is_outside = True
                    self._give(self._all[0] if self._is_ending else self._next(running))
                elif running is None and self._has_waited(here, time.monotonic() - began):
                    self._give(here)

    def _has_waited(self, here: OwnThread, seconds: float) -> bool:
        """Return whether *here* can take the turn that nobody has, after so many seconds of its wait."""
        if here.can_go_on():
            return True
        return here.awaits is not None and here.seconds is not None and seconds >= here.seconds

    def _comes_back(self, own: OwnThread, *event: object) -> None:
        """Let *own*, this thread, rest if it was taken its turn while it was outside of Python."""
        if self.running is own or own.is_switching:
            return
        with self._lock:
            own.is_outside = False
            if self.running is None and not self._is_ending:
                self.running = own
                return
        if not self._is_ending:
            self._rest(own)
        if self._is_ending:
            raise RankUnwound

    def _hand_on(self, own: OwnThread) -> None:
        """Let another thread run, as *own* has ended; the first, should none go on, says so."""
        with self._lock:
            own.is_over = True
            if self.running is own:
                self._give(self._all[0] if self._is_ending else self._after(own))
