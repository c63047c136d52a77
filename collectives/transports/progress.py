"""Progress of executions in real time, made by whoever calls: there is no thread.

A Python progress thread costs milliseconds per operation in hand-overs of the interpreter's
lock.  So the first messages are posted when a collective starts, and every later call, and
every hook of a backward pass, advances what is in flight.  Within a lane (see `collectives.execution.call`)
a wait completes the executions in the order in which they were started, so ranks that wait in
different orders do not deadlock.

Only the first execution of a lane may wait, be it for a message or for a peer to take one.  What
was started after it advances without waiting, or the ranks could wait for each other in a circle:
one in a later collective for a peer that is still in an earlier one, and that for the first.

Lanes do not wait for each other, nor do the queues of several communicators.  A message from one
rank to another is posted whole when it starts and then needs no more of this rank; but collectives
have further steps, which peers may need before they come to what is waited for here.  So whoever
waits while collectives are in flight elsewhere polls those too.
"""

from __future__ import annotations

import math
import time
import weakref
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress

from collectives.errors import CollectiveError
from collectives.execution.blame import Messages, Report, raise_again
from collectives.execution.call import Call, Lane, RecentCalls
from collectives.execution.clock import RealClock
from collectives.execution.transport import Execution, Handle
from collectives.execution.work import Work
from collectives.transports.home_process import HomeProcess
from collectives.transports.watchdog import Watchdog

_PAUSE_SECONDS = 50e-6
"""Between two looks at what is in flight."""


class ProgressQueue:
    """The executions of one transport that are in flight, by lane in the order of their start.

    Args:
        timeout: seconds within which a wait ends, with an error if need be, unless it says otherwise.
        explain: turns a failure into the error that is raised, given the seconds that it may take.
        grace: how many of a wait's seconds are kept for `explain`, which has all that are left where a
            failure is noticed earlier, up to what is kept of an endless wait.
        watchdog: entered while a wait lasts.
        beside: all queues of this rank, this one included, which advance while this one waits.

    Attributes:
        wait_until: when the wait in progress gives up, by ``time.monotonic``; None outside of waits.
    """

    def __init__(
        self,
        timeout: float,
        explain: Callable[[Report, Exception, float], CollectiveError],
        grace: Callable[[float], float] = lambda timeout: 0.0,
        watchdog: Watchdog | None = None,
        beside: Collection[ProgressQueue] = (),
    ) -> None:
        self.beside = beside
        self.home = HomeProcess()
        self.clock = RealClock()
        self.timeout = timeout
        self.explain = explain
        self.grace = grace
        self.watchdog = watchdog
        self.lanes: dict[Lane, deque[ProgressWork]] = {}
        self.recent = RecentCalls()
        self.wait_until: float | None = None
        self.failure: CollectiveError | None = None
        self._grace_seconds = grace(timeout)
        self._ends: float | None = None  # when the wait in progress is over, its grace included

    def start(self, execution: Generator[Handle, None, None], call: Call) -> ProgressWork:
        """Start *execution* in the lane of *call*: its first messages are posted before this returns."""
        self.raise_failure()
        self.poll()
        self.recent.append(call)
        work = ProgressWork(self, execution, call)
        if not work.finished:
            self.lanes.setdefault(call.lane, deque()).append(work)
            work.advance()
        return work

    def poll(self) -> None:
        """Advance everything in flight as far as it goes without waiting."""
        self.home.check()
        for work in self._in_flight():
            work.advance()
        self._forget_finished()

    def settle(self, lane: Lane) -> None:
        """Advance everything in flight without waiting, and see to it that nothing goes unnoticed.

        Raises:
            CollectiveError: the first execution of *lane* has stood at one step for as long as the time-out,
                while it was asked for again and again.
        """
        self._poll_and_observe()
        if lane in self.lanes and self.lanes[lane][0].is_overdue(self._give_up_after(None)):
            self._drive_head(lane, time.monotonic())

    def complete(self, work: ProgressWork, timeout: float | None) -> None:
        """Wait for *work*, and first for all that was started before it in its lane."""
        self.raise_failure()
        with self._waiting(timeout) as deadline:
            if self._elsewhere(work):
                self._wait_beside_collectives(work, deadline)
            while not work.finished:
                self._drive_head(work.call.lane, deadline)
                self._forget_finished()

    def complete_any(self, works: Sequence[Work], timeout: float | None) -> None:
        """Wait for one of *works*, each the first of its lane; all that is in flight advances meanwhile."""
        self.raise_failure()
        with self._waiting(timeout) as deadline:
            with self.watchdog or nullcontext():
                while all(work.completed_ps is None for work in works) and time.monotonic() < deadline:
                    self._poll_and_observe()
                    for queue in {*self.beside} - {self}:
                        with suppress(CollectiveError):  # raised again when that queue is used
                            queue._poll_and_observe()
                    time.sleep(_PAUSE_SECONDS)
            late = [work for work in works if isinstance(work, ProgressWork)]
            if late and all(work.completed_ps is None for work in works):
                self._drive_head(late[0].call.lane, deadline)

    @contextmanager
    def _waiting(self, timeout: float | None) -> Iterator[float]:
        """Give the time at which a wait of *timeout* seconds that begins now gives up."""
        seconds = self.timeout if timeout is None else timeout
        deadline = self._give_up_after(timeout)
        self._ends = time.monotonic() + seconds
        try:
            yield deadline
        finally:
            self._ends = None

    def _wait_beside_collectives(self, work: ProgressWork, deadline: float) -> None:
        """Wait while collectives are in flight elsewhere, until the *deadline* or a failure."""
        with self.watchdog or nullcontext():
            while (elsewhere := self._elsewhere(work)) and not work.finished and time.monotonic() < deadline:
                if self.watchdog is not None and self.watchdog.has_ended_it:
                    return
                self._poll_and_observe()
                for queue in elsewhere:
                    with suppress(CollectiveError):  # raised again when that queue is used
                        queue._poll_and_observe()
                time.sleep(_PAUSE_SECONDS)

    def _elsewhere(self, work: ProgressWork) -> list[ProgressQueue]:
        """Return the queues with collectives in flight that a wait for *work* alone would not advance."""
        queues = {*self.beside, self} - ({self} if work.call.lane is None else set())
        return [queue for queue in queues if None in queue.lanes]

    def _poll_and_observe(self) -> None:
        self.poll()
        for works in self.lanes.values():
            works[0].observe()
        self.poll()

    def _in_flight(self) -> list[ProgressWork]:
        return [work for works in self.lanes.values() for work in works]

    def _give_up_after(self, timeout: float | None) -> float:
        """Return when a wait of *timeout* seconds that begins now gives up, so that its error is in time."""
        seconds = self.timeout if timeout is None else timeout
        self._grace_seconds = self.grace(seconds)
        return time.monotonic() + seconds - self._grace_seconds

    def _drive_head(self, lane: Lane, deadline: float) -> None:
        self.wait_until = deadline
        try:
            with self.watchdog or nullcontext():
                self.lanes[lane][0].drive(deadline)
        finally:
            self.wait_until = None

    def _forget_finished(self) -> None:
        for lane, works in list(self.lanes.items()):
            while works and works[0].finished:
                works.popleft()
            if not works:
                del self.lanes[lane]

    def fail(self, report: Report, error: Exception) -> CollectiveError:
        """Record that a message was lost: what was in flight, and all that follows, has failed."""
        if isinstance(error, CollectiveError):
            self.failure = error
        else:
            self.failure = self.explain(report, error, self._seconds_to_explain())
        for work in self._in_flight():
            work.close()
        self.lanes.clear()
        return self.failure

    def _seconds_to_explain(self) -> float:
        """Return how long a failure that is noticed now may take to explain: a wait ends in time."""
        left = self.timeout if self._ends is None else self._ends - time.monotonic()
        return max(self._grace_seconds, min(left, self.grace(math.inf)))

    def raise_failure(self) -> None:
        """Raise if an earlier collective of this queue has failed, or if this is a forked child."""
        self.home.check()
        raise_again(self.failure)


class QueuedTransport:
    """As much of a `collectives.execution.transport.Transport` as its queue does for it."""

    queue: ProgressQueue

    def start(self, execution: Execution, call: Call) -> ProgressWork:
        """Start *execution*; it progresses whenever this rank calls."""
        return self.queue.start(execution, call)

    def poll(self) -> None:
        """Advance what is in flight."""
        self.queue.poll()

    def wait_any(self, works: Sequence[Work], timeout: float | None) -> None:
        """Return when one of *works* is complete."""
        self.queue.complete_any(works, timeout)


QUEUES: weakref.WeakSet[ProgressQueue] = weakref.WeakSet()
"""Those of all communicators between the processes of which this is one."""


class ProgressWork:
    """One execution in flight; a `collectives.execution.work.Work`."""

    def __init__(self, queue: ProgressQueue, execution: Generator[Handle, None, None], call: Call) -> None:
        self.queue = queue
        self.execution = execution
        self.call = call
        self.handle: Handle | None = None
        self.completed_ps: int | None = None
        self.step = -1
        self._deadline: tuple[int, float] | None = None  # of the step of this number
        self._go(self._next)

    @property
    def finished(self) -> bool:
        """Whether the result is in place."""
        return self.completed_ps is not None

    def advance(self) -> None:
        """Advance as far as it goes without waiting."""
        while self.handle is not None and self.handle.done():
            self._go(lambda: self._finish_step(self.queue.timeout))

    def observe(self) -> None:
        """Have it noticed when peers have taken what was sent to them."""
        if self.handle is not None:
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
        while self.handle is not None:
            self._go(lambda: self._finish_step(max(deadline - time.monotonic(), 0.001)))

    def wait(self, timeout: float | None = None) -> None:
        """Return when the result is in place."""
        if not self.finished:
            self.queue.complete(self, timeout)

    def is_completed(self) -> bool:
        """Advance what can be advanced; return whether the result is in place."""
        self.queue.raise_failure()
        self.queue.settle(self.call.lane)
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
            messages = self.handle.messages() if self.handle else Messages()
            report = Report(self.call, doing, tuple(self.queue.recent), messages)
            raise self.queue.fail(report, error) from error

    def _next(self) -> None:
        self.step += 1
        self.handle = next(self.execution, None)
        if self.handle is None:
            self.completed_ps = self.queue.clock.now_ps()
