"""Turns of the threads of one rank: one runs until it waits for another, and hands on to the next.

Where none can go on, the rank waits for nothing but itself, which is an error.  A wait with a time-out is
over at once where only time could end it, and takes that virtual time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from collectives.errors import CollectiveError
from sim.cluster import RankThread
from sim.cluster.scheduler import RankUnwound
from sim.units import SECOND


class OwnThread:
    """One of the threads of a rank.

    Attributes:
        awaits: returns whether it can go on; None while it runs, or can go on.
        seconds: for how long it waits; None: for ever.
        is_over: whether it has ended.
        is_daemon: whether the rank ends without waiting for it.
    """

    def __init__(self, is_daemon: bool = False) -> None:
        self.awaits: Callable[[], bool] | None = None
        self.seconds: float | None = None
        self.is_over = False
        self.is_daemon = is_daemon
        self._turn = threading.Lock()
        self._turn.acquire()

    def can_go_on(self) -> bool:
        """Return whether it has something to do; what it waited for is then taken."""
        if self.awaits is not None and not self.is_over and self.awaits():
            self.awaits = None
        return self.awaits is None and not self.is_over

    def stops_waiting(self) -> bool:
        """Return whether what it has waited for came; either way it waits no more."""
        came, self.awaits = self.awaits is None, None
        return came

    def give(self) -> None:
        """Let it run."""
        self._turn.release()

    def sleep(self) -> None:
        """Let this thread, which is the one, rest until it is given a turn."""
        self._turn.acquire()


class OwnThreads:
    """The threads of one rank, of which one runs.

    Args:
        rank_thread: the rank.

    Attributes:
        process: that of the rank; in one forked off it, such as a loader's worker, threads are what they are.
        running: the one that runs.
        is_starting: whether it starts another, for which it really waits.
    """

    def __init__(self, rank_thread: RankThread) -> None:
        self.rank_thread = rank_thread
        self.process = os.getpid()
        self.running = OwnThread()
        self.is_starting = False
        self._all = [self.running]
        self._is_ending = False

    def start(
        self,
        thread: threading.Thread,
        start: Callable[[threading.Thread], None],
        surroundings: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """Start *thread*, which first runs when the one that runs now waits.

        Args:
            thread: not yet started.
            start: starts it, as ``threading.Thread.start`` does.
            surroundings: in which it runs.
        """
        own, run = OwnThread(thread.daemon), thread.run

        def run_in_turn() -> None:
            own.sleep()
            try:
                if not self._is_ending:
                    with surroundings():
                        run()
            except RankUnwound:
                pass
            finally:
                own.is_over = True
                self._hand_on()

        thread.run = run_in_turn  # type: ignore[method-assign]
        thread.own_thread = own  # type: ignore[attr-defined]
        with self.really_waiting():
            start(thread)
        self._all.append(own)

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

        Where only time could end the wait, it takes *seconds* of virtual time, if they are given.

        Raises:
            CollectiveError: no thread of the rank can go on.
        """
        here = self.running
        if comes():
            return True
        here.awaits, here.seconds = comes, seconds
        successor = self._next() or self._all[0]  # which says so if none can go on
        if successor is not here:
            self._switch(here, successor)
        if here.stops_waiting():
            return True
        if seconds is None:
            raise CollectiveError(
                f"rank {self.rank_thread.rank}: every thread of this rank waits for another of its threads, "
                "so none will ever go on"
            )
        self.rank_thread.charge_ps(max(0, round(seconds * SECOND)))
        return comes()

    def let_others_run(self) -> None:
        """Let the next thread of the rank that can go on do so before this one goes on."""
        here, successor = self.running, self._next()
        if successor is not None and successor is not here:
            self._switch(here, successor)

    def end(self, succeeded: bool) -> None:
        """End all threads but the first, which this is; if the rank *succeeded*, daemons alone at once."""
        here, others = self.running, self._all[1:]
        if succeeded:
            self.wait_until(lambda: all(own.is_over or own.is_daemon for own in others))
        self._is_ending = True
        for own in others:
            while not own.is_over:
                self.running = own
                own.give()
                here.sleep()

    def _next(self) -> OwnThread | None:
        """Return the next thread that can go on, after the one that runs, or else whose wait ends first."""
        place = self._all.index(self.running)
        in_order = [*self._all[place + 1 :], *self._all[: place + 1]]
        for own in in_order:
            if own.can_go_on():
                return own
        timed = [own for own in in_order if own.awaits is not None and own.seconds is not None]
        return min(timed, key=lambda own: own.seconds or 0.0, default=None)

    def _switch(self, here: OwnThread, other: OwnThread) -> None:
        self.running = other
        other.give()
        here.sleep()
        if self._is_ending:
            raise RankUnwound
        self.rank_thread.check_thread()

    def _hand_on(self) -> None:
        """Let another thread run, as the one that runs has ended; the first, should none go on, says so."""
        successor = (None if self._is_ending else self._next()) or self._all[0]
        self.running = successor
        successor.give()
