"""Scheduler of rank threads: of all threads and the engine exactly one runs, in order of virtual time.

Whose turn it is decides the `Scheduler`, and nobody else.  Each thread holds a `Turn`: its local time, and
the lock at which it sleeps until its turn has come.  A thread that must wait hands control back to the
engine (SimPy, in the thread that called `Scheduler.run`); of those that can go on, the one with the lowest
(local time, number) is next, or at the same time whichever an `Order` chooses.  Only when none can go on does
the engine advance the common time.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

import simpy

from sim.cluster.order import Choices, Order
from sim.cluster.raised import raise_in, settle

_POLL_SECONDS = 0.1
"""How late a signal may be handled that came just before the engine's thread went to sleep."""
_INTERRUPT_SECONDS = 0.1
"""How long a thread that was interrupted has time to reach a wait, before it is stopped where it computes."""
_JOIN_SECONDS = 5.0
"""How long an unwound thread has time to end, and then again how long it is stopped where it computes."""
_AGAIN_SECONDS = 1.0
"""After how long a thread that has swallowed its end meets it again."""


class RankContext(Protocol):
    """What the process has once and every rank needs for itself, such as a random generator.

    What belongs to a rank stays in place until another rank runs, or the run ends.  So it is there
    while the engine runs, too, which must not depend on it.
    """

    def enter(self, rank: int) -> None:
        """Put in place what belongs to *rank*, which is about to run."""

    def leave(self, rank: int) -> None:
        """Keep what belongs to *rank*, and put back what was there before; in any thread."""

    def switch(self, before: int, after: int) -> None:
        """Leave *before* and enter *after*, without putting back what was there in between."""


class RankUnwound(BaseException):
    """Raised where a rank is when its run is over because of an error elsewhere, or it is killed.

    Not an `Exception`, so that a rank's ``except Exception`` does not swallow it.
    """


class Turn:
    """One thread's place in the order of turns; `Scheduler.make_turns` makes it.

    Attributes:
        number: of the thread; contexts know it by that.
        now_ps: its local time in picoseconds.
        waits_for: says what it waits for; None while it can go on.
        deadline_ps: until when it waits; None: for ever, or it does not wait.
        standstill: once its last wait has come to its deadline, what all threads waited for if nothing would
            ever have happened again, or else nothing; None: what it waited for came.
        is_over: whether the thread has ended.
        error: what it raised, if anything.
        numbers: returns, where an order makes the choices, which of the rank's threads can go on: the number
            of this one and of others that its rank has started (`sim.cluster.order`).
        chosen: which of them does.
    """

    def __init__(self, scheduler: Scheduler, number: int, now_ps: int) -> None:
        self.number = self.chosen = number
        self.numbers: Callable[[], Sequence[int]] = lambda: (number,)
        self.now_ps = now_ps
        self.waits_for: Callable[[], str] | None = None
        self.deadline_ps: int | None = None
        self.standstill: str | None = None
        self.is_over = False
        self.error: BaseException | None = None
        self._scheduler = scheduler
        self._is_ready = True
        self._baton = threading.Lock()
        self._baton.acquire()
        self._ending = threading.Lock()

    @property
    def is_unwound(self) -> bool:
        """Whether the run has failed, so that the thread is to end where it is."""
        return self._scheduler.is_unwinding

    def wait(
        self, waits_for: Callable[[], str], deadline_ps: int | None = None, is_ready: bool = False
    ) -> None:
        """Thread: hand control to the engine until `wake`, the deadline, or the run is unwound.

        One that *is_ready* goes on when it is its turn again.
        """
        self.waits_for, self.standstill = waits_for, None
        self._is_ready = False
        if is_ready:
            self.wake(self.now_ps)
        if deadline_ps is not None:
            self.deadline_ps = deadline_ps
            heapq.heappush(self._scheduler._deadlines, (deadline_ps, self.number))
        self._scheduler._hand_back()
        self._baton.acquire()
        self._scheduler._enter(self)
        self.waits_for = None

    def wake(self, now_ps: int) -> None:
        """Engine: let the thread go on at *now_ps*, or at its local time if that is later."""
        self.now_ps = max(self.now_ps, now_ps)
        if not self._is_ready:
            self._is_ready = True
            self.deadline_ps = None
            heapq.heappush(self._scheduler._runnable, (self.now_ps, self.number))

    def _run(self, body: Callable[[], None]) -> None:
        """Thread: run *body* from its first turn to its last."""
        self._baton.acquire()
        try:
            try:
                if not self._scheduler.is_unwinding:
                    self._scheduler._enter(self)
                    body()
            except RankUnwound:
                pass
            except BaseException as error:
                self.error = error
            with self._ending:
                self.is_over = True
        except RankUnwound:  # stopped once more, on its way out
            self.is_over = True
        finally:
            self._scheduler._hand_back()

    def _stop(self, thread: threading.Thread) -> None:
        """Raise `RankUnwound` in the thread where it computes, until it has ended or five seconds are over.

        Never on its last way, which is through Python's own code: that holds locks which every thread needs.
        """
        assert thread.ident is not None
        give_up = time.monotonic() + _JOIN_SECONDS
        while thread.is_alive() and time.monotonic() < give_up:
            with self._ending:
                if not self.is_over:
                    raise_in(thread.ident, RankUnwound)
            thread.join(_AGAIN_SECONDS)
        settle()


class Scheduler:
    """Who runs next: a thread that can go on, or else the engine.

    Attributes:
        is_unwinding: whether a run has failed, so that its threads are to end where they are.
        describe_standstill: says what all threads wait for, where nothing will ever happen again.
        choices: of this run, where an order makes them; else the lowest number is first.
    """

    def __init__(
        self, env: simpy.Environment, contexts: Sequence[RankContext], order: Order | None = None
    ) -> None:
        self.is_unwinding = False
        self.describe_standstill: Callable[[], str] = str
        self.choices: Choices | None = None
        self._order = order
        self._env = env
        self._contexts = contexts
        self._turns: dict[int, Turn] = {}
        self._runnable: list[tuple[int, int]] = []
        self._deadlines: list[tuple[int, int]] = []
        self._baton = threading.Lock()
        self._baton.acquire()
        self._running: Turn | None = None
        self._in_place: Turn | None = None

    def release(self) -> None:
        """Let go of contexts, and of what threads raised, with all that their frames hold."""
        self._contexts = ()
        for turn in self._turns.values():
            turn.error = None

    def make_turns(self, times_ps: Mapping[int, int]) -> tuple[Turn, ...]:
        """Return a turn for each thread of a new run, given the local time at which each number begins."""
        self._turns = {number: Turn(self, number, now_ps) for number, now_ps in times_ps.items()}
        self._runnable = sorted((turn.now_ps, turn.number) for turn in self._turns.values())
        self.choices = None if self._order is None else self._order.begin()
        return tuple(self._turns.values())

    @contextmanager
    def threads(self, bodies: Sequence[Callable[[], None]]) -> Iterator[None]:
        """Have a thread for each turn, to run one of *bodies*; all have ended afterwards.

        Where the ``with`` block raises, threads that have not ended are unwound: `RankUnwound` is raised in
        them where they wait.  One that computes is stopped where it is, and again should it go on, for
        five seconds; then it is left behind.
        """
        threads = {
            turn.number: threading.Thread(
                target=turn._run, args=(body,), name=f"rank {turn.number}", daemon=True
            )
            for turn, body in zip(self._turns.values(), bodies, strict=True)
        }
        try:
            for thread in threads.values():
                thread.start()
            yield
        except BaseException:
            self._unwind(threads)
            raise
        finally:
            self._enter(None)
        for thread in threads.values():
            thread.join()

    def run(self) -> Turn | None:
        """Give turns to threads and time to the engine for as long as any thread can go on.

        Returns:
            The turn of the thread that raised, if one has: then nothing runs any more.  Else None; threads
            that are not over wait for what will never happen.
        """
        while True:
            while self._runnable:
                if self.choices is None:
                    turn = self._turns[heapq.heappop(self._runnable)[1]]
                else:
                    turn = self._chosen(self.choices)
                self._give(turn)
                if turn.error is not None:
                    return turn
            if all(turn.is_over for turn in self._turns.values()) or not self._advance():
                return None

    def _chosen(self, choices: Choices) -> Turn:
        """Return the turn of the thread that is chosen, of those that can go on first.

        What the last turn has led to at this instant happens before.
        """
        self._finish_instant()
        runnable = self._runnable
        first_ps = runnable[0][0]
        turns = {}
        while runnable and runnable[0][0] == first_ps:
            turn = self._turns[heapq.heappop(runnable)[1]]
            turns.update(dict.fromkeys(turn.numbers(), turn))
        number = choices.first("turn", sorted(turns), first_ps)
        chosen = turns[number]
        chosen.chosen = number
        for other in dict.fromkeys(turns.values()):
            if other is not chosen:
                heapq.heappush(runnable, (first_ps, other.number))
        return chosen

    def _give(self, turn: Turn) -> None:
        """Let the thread of *turn* run until it hands control back.

        A signal that comes when Python has looked for signals, but the thread does not sleep yet, does not
        wake it.  So it looks again now and then, lest an interrupt wait for as long as a rank computes.
        """
        self._running = turn
        turn._baton.release()
        while not self._baton.acquire(True, _POLL_SECONDS):
            pass
        self._running = None

    def _hand_back(self) -> None:
        """Thread: let the engine go on, which no longer waits for that when threads are unwound."""
        if not self.is_unwinding:
            self._baton.release()

    def _advance(self) -> bool:
        """Advance time to the end of the first instant in which a thread can go on, if there is one."""
        env, never = self._env, float("inf")
        while not self._runnable:
            if self._deadlines and self._end_first_wait():
                break
            if env.peek() == never:
                return False
            env.step()
        self._finish_instant()
        return True

    def _finish_instant(self) -> None:
        """Let all happen that happens now."""
        env = self._env
        while env.peek() == env.now:
            env.step()

    def _end_first_wait(self) -> bool:
        """End the wait whose deadline is first, if nothing happens before that; return whether one has."""
        deadlines, next_ps = self._deadlines, self._env.peek()
        while deadlines and self._turns[deadlines[0][1]].deadline_ps != deadlines[0][0]:
            heapq.heappop(deadlines)  # that wait is over
        if not deadlines or deadlines[0][0] >= next_ps:
            return False
        deadline_ps, number = heapq.heappop(deadlines)
        turn = self._turns[number]
        turn.standstill = self.describe_standstill() if next_ps == float("inf") else ""
        turn.wake(deadline_ps)
        return True

    def _enter(self, turn: Turn | None) -> None:
        """Put in place what belongs to the thread of *turn*; for None, what was there before the run."""
        before, self._in_place = self._in_place, turn
        if before is turn:
            return
        if before is not None and turn is not None:
            for context in self._contexts:
                context.switch(before.number, turn.number)
        elif before is not None:
            for context in reversed(self._contexts):
                context.leave(before.number)
        elif turn is not None:
            for context in self._contexts:
                context.enter(turn.number)

    def _unwind(self, threads: Mapping[int, threading.Thread]) -> None:
        """End every thread that has not ended, one at a time, the one that was running first."""
        self.is_unwinding = True
        interrupted = self._running
        for turn in sorted(self._turns.values(), key=lambda turn: turn is not interrupted):
            thread = threads[turn.number]
            if thread.ident is None:  # an interrupt came before it was started
                continue
            if turn._baton.locked():
                turn._baton.release()
            thread.join(_INTERRUPT_SECONDS if turn is interrupted else _JOIN_SECONDS)
            turn._stop(thread)
