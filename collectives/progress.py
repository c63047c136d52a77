"""Executions in real time, progressed by whoever calls: there is no thread.

A Python progress thread costs milliseconds per operation in hand-overs of the interpreter's
lock.  So the first messages are posted when a collective starts, and every later call, and
every hook of a backward pass, advances what is in flight.  A wait completes the executions in
the order in which they were started, so ranks that wait in different orders do not deadlock.

Only the first execution in flight may wait, be it for a message or for a peer to take one.  What
was started after it advances without waiting, or the ranks could wait for each other in a circle:
one in a later collective for a peer that is still in an earlier one, and that for the first.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from collectives.call import NUM_RECENT, Call, Report, raise_again
from collectives.clock import RealClock
from collectives.errors import CollectiveError


class Handle(Protocol):
    """What a real transport's ``post`` returns: a step in flight.

    ``brief`` says that all data has arrived, and that waiting lasts only until the peers have
    taken what was sent to them.
    """

    @property
    def brief(self) -> bool:
        """Whether only sends are left."""

    def done(self) -> bool:
        """Return, without waiting, whether the step is known to be complete."""

    def wait(self, timeout: float) -> None:
        """Complete the step: its writes have landed.  Raises after *timeout* seconds."""

    def doing(self) -> str:
        """Return what the step waits for, in words."""


class ProgressQueue:
    """The executions of one transport that are in flight, in the order of their start.

    Args:
        timeout: seconds within which a wait ends, with an error if need be, unless it says otherwise.
        explain: turns a failure into the error that is raised, given the seconds that it may take.
        grace: how many of a wait's seconds are kept for `explain`.
        watch: entered while a wait lasts.

    Attributes:
        wait_until: when the wait in progress gives up, by ``time.monotonic``; None outside of waits.
    """

    def __init__(
        self,
        timeout: float,
        explain: Callable[[Report, Exception, float], CollectiveError],
        grace: Callable[[float], float] = lambda timeout: 0.0,
        watch: AbstractContextManager[None] | None = None,
    ) -> None:
        self.clock = RealClock()
        self.timeout = timeout
        self.explain = explain
        self.grace = grace
        self.watch = nullcontext() if watch is None else watch
        self.in_flight: deque[ProgressWork] = deque()
        self.recent: deque[Call] = deque(maxlen=NUM_RECENT)
        self.wait_until: float | None = None
        self.failure: CollectiveError | None = None
        self._grace_seconds = grace(timeout)
        self._vain: tuple[ProgressWork, int, float] | None = None

    def start(self, execution: Generator[Handle, None, None], call: Call) -> ProgressWork:
        """Start *execution*: its first messages are posted before this returns."""
        self.raise_failure()
        self.poll()
        self.recent.append(call)
        work = ProgressWork(self, execution, call)
        self.in_flight.append(work)
        work.advance()
        return work

    def poll(self) -> None:
        """Advance everything in flight as far as it goes without waiting."""
        for work in tuple(self.in_flight):
            work.advance()
        self._forget_finished()

    def settle(self) -> None:
        """Advance everything in flight, waiting only for peers to take what was sent to them.

        Raises:
            CollectiveError: the same step was in vain waited for by calls of this for the time-out.
        """
        self.poll()
        while self.in_flight and (handle := self.in_flight[0].handle) is not None and handle.brief:
            self._drive_head(self._give_up_after(None), num_steps=1)
            self.poll()
        if not self.in_flight:
            return
        head, now = self.in_flight[0], time.monotonic()
        if self._vain is None or self._vain[:2] != (head, head.step):
            self._vain = head, head.step, self._give_up_after(None)
        elif now > self._vain[2]:
            self._drive_head(now)

    def complete(self, work: ProgressWork, timeout: float | None) -> None:
        """Wait for *work*, and first for all that was started before it."""
        self.raise_failure()
        deadline = self._give_up_after(timeout)
        while not work.finished:
            self._drive_head(deadline)
            self._forget_finished()

    def _give_up_after(self, timeout: float | None) -> float:
        """Return when a wait of *timeout* seconds that begins now gives up, so that its error is in time."""
        seconds = self.timeout if timeout is None else timeout
        self._grace_seconds = self.grace(seconds)
        return time.monotonic() + seconds - self._grace_seconds

    def _drive_head(self, deadline: float, num_steps: int | None = None) -> None:
        self.wait_until = deadline
        try:
            with self.watch:
                self.in_flight[0].drive(deadline, num_steps)
        finally:
            self.wait_until = None

    def _forget_finished(self) -> None:
        while self.in_flight and self.in_flight[0].finished:
            self.in_flight.popleft()

    def fail(self, report: Report, error: Exception) -> CollectiveError:
        """Record that a message was lost: what was in flight, and all that follows, has failed."""
        if isinstance(error, CollectiveError):
            self.failure = error
        else:
            self.failure = self.explain(report, error, self._grace_seconds)
        for work in self.in_flight:
            work.close()
        self.in_flight.clear()
        return self.failure

    def raise_failure(self) -> None:
        """Raise if an earlier collective of this queue has failed."""
        raise_again(self.failure)


class ProgressWork:
    """One execution in flight; a `collectives.work.Work`."""

    def __init__(self, queue: ProgressQueue, execution: Generator[Handle, None, None], call: Call) -> None:
        self.queue = queue
        self.execution = execution
        self.call = call
        self.handle: Handle | None = None
        self.completed_ps: int | None = None
        self.step = -1
        self._go(self._next)

    @property
    def finished(self) -> bool:
        """Whether the result is in place."""
        return self.completed_ps is not None

    def advance(self) -> None:
        """Advance as far as it goes without waiting."""
        while self.handle is not None and self.handle.done():
            self._go(lambda: self._finish_step(self.queue.timeout))

    def drive(self, deadline: float, num_steps: int | None = None) -> None:
        """Advance to the end, or by *num_steps*, waiting where needed, until *deadline* (monotonic)."""
        while self.handle is not None and num_steps != 0:
            self._go(lambda: self._finish_step(max(deadline - time.monotonic(), 0.001)))
            num_steps = None if num_steps is None else num_steps - 1

    def wait(self, timeout: float | None = None) -> None:
        """Return when the result is in place."""
        if not self.finished:
            self.queue.complete(self, timeout)

    def is_completed(self) -> bool:
        """Advance what can be advanced; return whether the result is in place."""
        self.queue.raise_failure()
        self.queue.settle()
        return self.finished

    def close(self) -> None:
        """Give up: nothing more is posted."""
        self.handle = None
        self.execution.close()

    def _finish_step(self, timeout: float) -> None:
        assert self.handle is not None
        self.handle.wait(timeout)
        self._next()

    def _go(self, move: Callable[[], None]) -> None:
        """Make a move; a failure of it fails the whole queue."""
        try:
            move()
        except Exception as error:
            doing = f"step {self.step}" + (f": {self.handle.doing()}" if self.handle else "")
            report = Report(self.call, doing, tuple(self.queue.recent))
            raise self.queue.fail(report, error) from error

    def _next(self) -> None:
        self.step += 1
        self.handle = next(self.execution, None)
        if self.handle is None:
            self.completed_ps = self.queue.clock.now_ps()
