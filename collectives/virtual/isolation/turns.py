"""Turns of the threads of one rank: one runs until it waits for another, and hands on to the next.

Where all wait, and some of them in virtual time, the rank does; where none does, it waits for nothing but
itself, which is an error.  A wait with a time-out is over at once where only time could end it, and takes
that virtual time.

Where an order makes the choices of a run (`sim.cluster.order`), threads of a rank are among them: whoever
waits, starts a thread or a call, or takes a lock, may be overtaken there by any that can go on.  Turns can be
told apart by their order that begin at the same lock, or at calls of groups and waits for them.

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
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from collectives.errors import CollectiveError
from collectives.virtual.isolation.own_thread import OwnThread
from sim.cluster import Cluster, RankThread, Thing, Touch
from sim.cluster.order import number_of, thread_of
from sim.cluster.raised import settle
from sim.cluster.scheduler import RankUnwound
from sim.errors import OrdersError
from sim.units import SECOND

_FIRST_LOOK, _LAST_LOOK = 0.01, 0.25
"""Seconds between two looks at the thread that has the turn: at first, and for as long as it goes on."""


class OwnThreads:
    """The threads of one rank, of which one runs.

    Attributes:
        process: that of the rank; in one forked off it, such as a loader's worker, threads are what they are.
        running: the one that runs; None while all wait, and what one outside of Python brings can end that.
        is_starting: whether it starts another, for which it really waits.
        pools: whose threads wait for work until somebody shuts them down, or the process does at its end.
    """

    def __init__(self, rank_thread: RankThread) -> None:
        self.rank_thread = rank_thread
        self.rank_thread.others = self
        self._choices = rank_thread.cluster.choices
        self._calls = Thing(f"the calls of rank {rank_thread.rank}'s threads", ("threads", rank_thread.rank))
        self.process = os.getpid()
        self.running: OwnThread | None = OwnThread()
        self.is_starting = False
        self.pools: WeakSet[ThreadPoolExecutor] = WeakSet()
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
        self.may_be_overtaken(None)

    @property
    def started(self) -> list[tuple[OwnThread, threading.Thread]]:
        """Those that the rank has started and that have not ended, with what they are in Python."""
        return [(own, own.thread) for own in self._all if own.thread is not None and not own.is_over]

    @property
    def place(self) -> int:
        """How many threads the rank had started before the one that runs."""
        return self._all.index(self._here())

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

    def wait_until(
        self, comes: Callable[[], bool], seconds: float | None = None, thing: Thing | None = None
    ) -> bool:
        """Let other threads of the rank run until *comes* is true; return whether it is.

        In an order *thing* is what threads share there.

        Where only time could end the wait, it takes *seconds* of virtual time, if they are given.  While a
        thread is outside of Python, so many of real time pass first.

        Raises:
            CollectiveError: no thread of the rank can go on.
        """
        here = self._here()
        if comes():
            return True
        here.awaits, here.seconds, here.next_thing = comes, seconds, thing
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

    def wait(
        self, comes: Callable[[], bool], describe: Callable[[], str], deadline_ps: int | None
    ) -> str | None:
        """Let other threads of the rank run while this one waits in virtual time, as `OtherThreads.wait`."""
        here = self._here()
        here.awaits, here.says, here.deadline_ps, here.standstill = comes, describe, deadline_ps, None
        here.next_thing = self._calls
        try:
            self._switch(here, self._after(here))
        finally:
            here.says = here.deadline_ps = None
        here.stops_waiting()
        standstill, here.standstill = here.standstill, None
        return standstill

    def numbers(self) -> Sequence[int]:
        """Return the numbers, in an order, of those that can go on."""
        rank, ready = self.rank_thread.rank, self._ready(self._all[0])
        return [number_of(rank, place) for place, own in enumerate(self._all) if own in ready]

    def may_call(self) -> None:
        """Let an order choose another thread of the rank before this one makes a call of a group."""
        self.may_be_overtaken(self._calls)

    def may_be_overtaken(self, thing: Thing | None) -> None:
        """Let an order choose another thread of the rank before this one, which then touches *thing*."""
        if self._choices is not None and len(self.started) > 0:
            self._here().next_thing = thing
            self.let_others_run()

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
        self._switch(here, self._after(here))

    def join_all(self) -> None:
        """Let the threads that are no daemons come to their end, as a process does at its own.

        Raises:
            CollectiveError: one of them waits for what will never come.
        """
        for pool in self.pools:
            pool.shutdown(wait=False)
        others = self._all[1:]
        self.wait_until(lambda: all(own.is_over or own.is_daemon for own in others))

    def end(self) -> None:
        """End all threads but the first, which this is.

        Those outside of Python are left there, and end when they come back.
        """
        here, others = self._all[0], self._all[1:]
        self._is_ending = True
        for own in others:
            while not own.is_over and not own.is_outside:
                self._give(own)
                self._rest(here)

    def _here(self) -> OwnThread:
        """Return the thread that runs, which this is."""
        assert self.running is not None
        return self.running

    def _ready(self, here: OwnThread) -> list[OwnThread]:
        """Return the threads that can go on, from *here* on, or else the one whose wait ends first.

        While a thread is outside of Python, or waits in virtual time, time alone does not end a wait.
        """
        place = self._all.index(here)
        in_order = [*self._all[place + 1 :], *self._all[: place + 1]]
        now_ps, standstill = self.rank_thread.now_ps(), self.rank_thread.standstill
        for own in in_order:
            if standstill is not None and own.deadline_ps is not None and own.deadline_ps <= now_ps:
                own.standstill = standstill
        ready = [own for own in in_order if own.can_go_on()]
        if ready or self.outside or self._in_time():
            return ready
        timed = [own for own in in_order if own.awaits is not None and own.seconds is not None]
        return [min(timed, key=lambda own: own.seconds or 0.0)] if timed else []

    def _in_time(self) -> list[OwnThread]:
        """Return the threads that wait in virtual time."""
        return [own for own in self._all if own.says is not None and own.awaits is not None]

    def _after(self, here: OwnThread) -> OwnThread | None:
        """Return who runs when *here* rests, once virtual time has passed if that is what all wait for.

        If none ever can go on, that is the first, which says so; None: nobody for now.
        """
        while not self.rank_thread.is_ending:
            ready, waiting = self._ready(here), self._in_time()
            if ready and self._choices is None:
                return ready[0]
            if not ready and not waiting:
                return None if self.outside else self._all[0]
            chosen = self._pause(waiting, bool(ready))
            if self._choices is not None:
                return chosen
        return self._all[0]

    def _pause(self, waiting: Sequence[OwnThread], is_ready: bool) -> OwnThread:
        """Let the engine go on until a thread of the rank can; return the one that an order has chosen."""
        if self._choices is not None and self.outside:
            raise OrdersError(
                f"orders: a thread of rank {self.rank_thread.rank} blocks outside Python (in a socket, a "
                "process or a lock made before the run), where no order can be chosen; let threads wait for "
                "each other in conditions, events or queues"
            )
        deadlines = [own.deadline_ps for own in waiting if own.deadline_ps is not None]

        def describe() -> str:
            return " and ".join(dict.fromkeys(own.says() for own in waiting if own.says is not None))

        return self._all[thread_of(self.rank_thread.pause(describe, min(deadlines, default=None), is_ready))]

    def _give(self, own: OwnThread | None) -> None:
        with self._lock:
            self.running = own
            if own is not None:
                own.give()

    def _switch(self, here: OwnThread, other: OwnThread | None) -> None:
        if other is not here:
            here.is_switching = True
            self._give(other)
            self._rest(here)
            here.is_switching = False
        if self._is_ending:
            raise RankUnwound
        self.rank_thread.check_thread()
        if self._choices is not None and here.next_thing is not None:
            self._choices.touch(here.next_thing, Touch.WRITE)
            here.next_thing = None

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
                    ready = self._ready(running)
                    self._give(self._all[0] if self._is_ending else ready[0] if ready else None)
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
            has_turn = self.running is own
        if has_turn:
            self._give(self._all[0] if self._is_ending else self._after(own))


def threads_here() -> OwnThreads | None:
    """Return the threads of this thread's rank, if it has more than one."""
    rank_thread = Cluster.current()
    if rank_thread is None:
        return None
    found: OwnThreads | None = rank_thread.cluster.shared.get(OwnThreads, {}).get(rank_thread.rank)
    return found if found is not None and found.process == os.getpid() else None
