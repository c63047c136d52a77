"""One execution in flight, which one thread at a time drives."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from threading import get_ident
from typing import Protocol

from collectives.errors import CollectiveError
from collectives.execution.blame import Messages, Report
from collectives.execution.call import Call, Lane, RecentCalls
from collectives.execution.clock import Clock
from collectives.execution.transport import Handle


class Queue(Protocol):
    """What an execution asks of the queue in which it is: `collectives.transports.progress.ProgressQueue`."""

    timeout: float
    recent: RecentCalls
    failure: CollectiveError | None

    @property
    def clock(self) -> Clock:
        """Tell the time at which an execution ends."""

    def complete(self, work: ProgressWork, timeout: float | None) -> None:
        """Wait for *work*, and first for all that was started before it in its lane."""

    def settle(self, lane: Lane) -> None:
        """Advance everything in flight without waiting."""

    def notify(self) -> None:
        """Wake threads that wait for what another one has had in hand."""

    def fail(self, report: Report, error: Exception) -> CollectiveError:
        """Note the failure of all that is in flight, and return it."""

    def raise_failure(self) -> None:
        """Raise the failure, if there is one."""


class ProgressWork:
    """An execution in *queue*; a `collectives.execution.work.Work`.

    All but `finished`, `wait` and `is_completed` is for whoever has the queue's turn.

    Attributes:
        driver: the thread that has it in hand, by number, also while that has given its turn away.
    """

    def __init__(self, queue: Queue, execution: Generator[Handle, None, None], call: Call) -> None:
        self.queue = queue
        self.execution = execution
        self.call = call
        self.handle: Handle | None = None
        self.completed_ps: int | None = None
        self.step = -1
        self.driver: int | None = get_ident()
        self._deadline: tuple[int, float] | None = None  # of the step of this number
        self._go(self._next)
        self.driver = None

    @property
    def finished(self) -> bool:
        """Whether the result is in place."""
        return self.completed_ps is not None

    def advance(self) -> None:
        """Advance as far as it goes without waiting, unless another thread has it in hand."""
        if self.handle is None or self.driver is not None:
            return
        self.driver = get_ident()
        try:
            while self.handle is not None and self.handle.done():
                self._go(lambda: self._finish_step(self.queue.timeout))
        finally:
            self._let_go()

    def observe(self) -> None:
        """Have it noticed when peers have taken what was sent to them."""
        if self.handle is not None and self.driver is None:
            self.handle.observe(self.queue.timeout)

    def is_overdue(self, give_up: float) -> bool:
        """Return whether the current step has missed its deadline.

        Nobody waits for it, so its deadline is the *give_up* of the first call of this in that step.
        """
        if self._deadline is None or self._deadline[0] != self.step:
            self._deadline = self.step, give_up
        return time.monotonic() > self._deadline[1]

    def drive(self, deadline: float) -> None:
        """Advance to the end, waiting where needed, until *deadline* (monotonic)."""
        self.driver = get_ident()
        try:
            while self.handle is not None:
                self._go(lambda: self._finish_step(max(deadline - time.monotonic(), 0.001)))
        finally:
            self._let_go()

    def expire(self, seconds: float) -> None:
        """Fail, as it has not completed in the *seconds* of a wait, whoever has it in hand.

        Raises:
            CollectiveError: always.
        """
        doing = self.handle.doing() if self.handle else "starting a step"
        self._fail(TimeoutError(f"Timed out after {seconds:.3g} s: {doing}"))

    def wait(self, timeout: float | None = None) -> None:
        """Return when the result is in place."""
        if not self.finished:
            self.queue.complete(self, timeout)

    def is_completed(self) -> bool:
        """Advance what can be advanced; return whether the result is in place."""
        self.queue.settle(self.call.lane)
        return self.finished

    def close(self) -> None:
        """Give up: nothing more is posted; a thread that has it in hand closes it when it comes back."""
        if self.driver in (None, get_ident()):
            self.handle = None
            self.execution.close()

    def _let_go(self) -> None:
        self.driver = None
        self.queue.notify()

    def _finish_step(self, timeout: float) -> None:
        assert self.handle is not None
        self.handle.wait(timeout)
        if self.queue.failure is None:
            self._next()
        else:  # noticed by another thread meanwhile
            self.close()
            self.queue.raise_failure()

    def _go(self, move: Callable[[], None]) -> None:
        """Make a move; a failure of it fails the whole queue."""
        try:
            move()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """Raise what the failure of the queue by *error* is, or was when another thread noticed it."""
        if self.queue.failure is not None:
            self.close()
            self.queue.raise_failure()
        doing = f"step {self.step}" + (f": {self.handle.doing()}" if self.handle else "")
        messages = self.handle.messages() if self.handle else Messages()
        report = Report(self.call, doing, tuple(self.queue.recent), messages)
        raise self.queue.fail(report, error) from error

    def _next(self) -> None:
        self.step += 1
        self.handle = next(self.execution, None)
        if self.handle is None:
            self.completed_ps = self.queue.clock.now_ps()
