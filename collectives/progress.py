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
from typing import Protocol

from collectives.call import Call, Report
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
        timeout: seconds after which a wait gives up, unless it says otherwise.
        explain: turns a failure into the error that is raised; see `collectives.call.diagnose`.
    """

    def __init__(self, timeout: float, explain: Callable[[Report, Exception], CollectiveError]) -> None:
        self.clock = RealClock()
        self.timeout = timeout
        self.explain = explain
        self.in_flight: deque[ProgressWork] = deque()
        self.may_wait = False
        self.failure: CollectiveError | None = None

    def start(self, execution: Generator[Handle, None, None], call: Call) -> ProgressWork:
        """Start *execution*: its first messages are posted before this returns."""
        self.raise_failure()
        self.poll()
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
        """Advance everything in flight, waiting only for peers to take what was sent to them."""
        self.poll()
        while self.in_flight and (handle := self.in_flight[0].handle) is not None and handle.brief:
            self._drive_head(time.monotonic() + self.timeout, num_steps=1)
            self.poll()

    def complete(self, work: ProgressWork, timeout: float | None) -> None:
        """Wait for *work*, and first for all that was started before it."""
        self.raise_failure()
        deadline = time.monotonic() + (self.timeout if timeout is None else timeout)
        while not work.finished:
            self._drive_head(deadline)
            self._forget_finished()

    def _drive_head(self, deadline: float, num_steps: int | None = None) -> None:
        self.may_wait = True
        try:
            self.in_flight[0].drive(deadline, num_steps)
        finally:
            self.may_wait = False

    def _forget_finished(self) -> None:
        while self.in_flight and self.in_flight[0].finished:
            self.in_flight.popleft()

    def fail(self, report: Report, error: Exception) -> CollectiveError:
        """Record that a message was lost: what was in flight, and all that follows, has failed."""
        self.failure = error if isinstance(error, CollectiveError) else self.explain(report, error)
        for work in self.in_flight:
            work.close()
        self.in_flight.clear()
        return self.failure

    def raise_failure(self) -> None:
        """Raise if an earlier collective of this queue has failed."""
        if self.failure is not None:
            raise type(self.failure)(f"an earlier collective of this group has failed: {self.failure}")


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
            raise self.queue.fail(Report(self.call, doing), error) from error

    def _next(self) -> None:
        self.step += 1
        self.handle = next(self.execution, None)
        if self.handle is None:
            self.completed_ps = self.queue.clock.now_ps()
