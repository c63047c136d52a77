"""Progress of executions in real time, made by whoever calls: there is no progress thread.

A Python progress thread costs milliseconds per operation in hand-overs of the interpreter's
lock.  So the first messages are posted when a collective starts, and every later call, and
every hook of a backward pass, advances what is in flight.  Within a lane (see `collectives.execution.call`)
a wait completes the executions in the order in which they were started, so ranks that wait in
different orders do not deadlock.

Only the first execution of a lane may wait, be it for a message or for a peer to take one.  What
was started after it advances without waiting, or the ranks could wait for each other in a circle:
one in a later collective for a peer that is still in an earlier one, and that for the first.

Lanes do not wait for each other, nor do the queues of several communicators.  Over Gloo a message from one
rank to another is posted whole when it starts and then needs no more of this rank; but messages in memory
have to be taken, and collectives have further steps, which peers may need before they come to what is waited
for here.  So whoever waits polls those as well that are left alone (`collectives.transports.rank_queues`).

Several threads may call.  One at a time has the queue's turn (`collectives.transports.turn`); an execution
is driven by one of them, and who waits for it too, or for one behind it, sleeps until that one lets it go.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from threading import get_ident
from typing import NamedTuple

from collectives.errors import CollectiveError
from collectives.execution.blame import Report, raise_again
from collectives.execution.call import Call, Lane, RecentCalls
from collectives.execution.clock import RealClock
from collectives.execution.transport import Execution, Handle
from collectives.execution.work import Work
from collectives.transports.progress_work import ProgressWork
from collectives.transports.rank_queues import PAUSE_SECONDS, Attended, RankQueues
from collectives.transports.turn import Turn
from collectives.transports.watchdog import Watchdog

_MOST_SECONDS = 3600.0  # of a sleep, after which it is begun anew: threads cannot sleep for ever


class ProgressQueue:
    """The executions of one transport that are in flight, by lane in the order of their start.

    Args:
        timeout: seconds within which a wait ends, with an error if need be, unless it says otherwise.
        explain: turns a failure into the error that is raised, given the seconds that it may take.
        grace: how many of a wait's seconds are kept for `explain`, which has all that are left where a
            failure is noticed earlier, up to what is kept of an endless wait.
        watchdog: entered while a wait lasts.
        rank: all queues of this rank, of which this becomes one; they advance while this one waits.
        takes_messages: whether messages from one rank to another, too, need calls of this rank.

    Attributes:
        turn: which a thread has that touches what is in flight.
    """

    def __init__(
        self,
        timeout: float,
        explain: Callable[[Report, Exception, float], CollectiveError],
        grace: Callable[[float], float] = lambda timeout: 0.0,
        watchdog: Watchdog | None = None,
        rank: RankQueues | None = None,
        takes_messages: bool = False,
    ) -> None:
        self.rank = RankQueues() if rank is None else rank
        self.turn = Turn(self.rank.waiting)
        self.clock = RealClock()
        self.timeout = timeout
        self.explain = explain
        self.grace = grace
        self.watchdog = watchdog
        self.takes_messages = takes_messages
        self.lanes: dict[Lane, deque[ProgressWork]] = {}
        self.recent = RecentCalls()
        self.failure: CollectiveError | None = None
        self._waits: dict[int, _Wait] = {}  # by thread
        self._driving: dict[int, float] = {}  # until when, by thread
        self._num_polling = 0  # threads that wait and poll all that is in flight here
        self._num_awaiting = 0  # threads, each for what another one drives
        self.rank.add(self)

    @property
    def wait_until(self) -> float | None:
        """When the wait gives up in which this thread drives, by ``time.monotonic``; None outside of such."""
        return self._driving.get(get_ident())

    def start(self, execution: Generator[Handle, None, None], call: Call) -> ProgressWork:
        """Start *execution* in the lane of *call*: its first messages are posted before this returns."""
        with self.turn:
            self.raise_failure()
            self._poll()
            self.recent.append(call)
            work = ProgressWork(self, execution, call)
            if not work.finished:
                self.lanes.setdefault(call.lane, deque()).append(work)
                work.advance()
                self._leave()
        return work

    def poll(self) -> None:
        """Advance everything in flight as far as it goes without waiting."""
        with self.turn:
            self._poll()
            self._leave()

    def settle(self, lane: Lane) -> None:
        """Advance everything in flight without waiting, and see to it that nothing goes unnoticed.

        Raises:
            CollectiveError: the first execution of *lane* has stood at one step for as long as the time-out,
                while it was asked for again and again; or an earlier one has failed.
        """
        with self.turn:
            self.raise_failure()
            self._poll_and_observe()
            head = self._head(lane)
            if head is not None and head.driver is None:
                now = time.monotonic()
                if head.is_overdue(now + self.timeout - self.grace(self.timeout)):
                    self._drive_head(lane, now)
            self._leave()

    def complete(self, work: ProgressWork, timeout: float | None) -> None:
        """Wait for *work*, and first for all that was started before it in its lane."""
        with self.turn:
            wait = self._begin_wait(timeout)
            try:
                if not work.finished:
                    self._wait_beside_others(work, wait.gives_up)
                while not work.finished:
                    self.raise_failure()
                    self._drive_head(work.call.lane, wait.gives_up)
                    self._forget_finished()
            finally:
                self._end_wait()

    def complete_any(self, works: Sequence[Work], timeout: float | None) -> None:
        """Wait for one of *works*, each the first of its lane; all that is in flight advances meanwhile."""
        with self.turn:
            wait = self._begin_wait(timeout)
            try:
                self._complete_any(works, wait.gives_up)
            finally:
                self._end_wait()

    def is_left_alone(self) -> bool:
        """Return whether something is in flight that needs calls of this rank, and no thread waits for it.

        Whoever asks may not have the turn, and will not wait for it: what is on its way in or out counts.
        """
        if self._num_polling or not self.lanes:
            return False
        lanes = [lane for lane in list(self.lanes) if lane is None or self.takes_messages]
        heads = [self._head(lane) for lane in lanes]
        return any(head is not None and head.driver is None for head in heads)

    def attend(self) -> None:
        """Advance what is in flight, unless a thread is about it; a failure is raised when this is used."""
        if self.turn.acquire(blocking=False):
            try:
                with suppress(CollectiveError):
                    self._poll_and_observe()
            finally:
                self.turn.release()

    def notify(self) -> None:
        """Wake those who sleep until a thread lets an execution go."""
        if self._num_awaiting:
            self.turn.changed.notify_all()

    def fail(self, report: Report, error: Exception) -> CollectiveError:
        """Record that a message was lost: what was in flight, and all that follows, has failed."""
        if isinstance(error, CollectiveError):
            self.failure = error
        else:
            self.failure = self.explain(report, error, self._seconds_to_explain())
        for work in self._in_flight():
            work.close()
        self.lanes.clear()
        self.notify()
        return self.failure

    def raise_failure(self) -> None:
        """Raise if an earlier collective of this queue has failed."""
        raise_again(self.failure)

    def _begin_wait(self, timeout: float | None) -> _Wait:
        """Begin a wait of this thread of *timeout* seconds, by default the queue's; see `_end_wait`."""
        seconds = self.timeout if timeout is None else timeout
        kept, ends, thread = self.grace(seconds), time.monotonic() + seconds, get_ident()
        wait = self._waits[thread] = _Wait(seconds, kept, ends, ends - kept)
        self.rank.waiting.add(thread)
        return wait

    def _end_wait(self) -> None:
        thread = get_ident()
        self.rank.waiting.discard(thread)
        self._waits.pop(thread, None)
        self._leave()

    def _complete_any(self, works: Sequence[Work], deadline: float) -> None:
        with self.watchdog or nullcontext(), self._polling():
            while all(work.completed_ps is None for work in works) and time.monotonic() < deadline:
                self.raise_failure()
                self._advance_all(self.rank.left_alone(without=self))
        late = [work for work in works if isinstance(work, ProgressWork)]
        while late and all(work.completed_ps is None for work in works):
            self.raise_failure()
            self._drive_head(late[0].call.lane, deadline)
            self._forget_finished()

    def _leave(self) -> None:
        """Leave what is in flight, if there is something, to who attends to it while other threads wait."""
        if self.lanes and self.rank.waiting:
            self.rank.call_attendant()

    @contextmanager
    def _polling(self) -> Iterator[None]:
        """Say that this thread polls what is in flight, so that others need not; they may rely on it."""
        self._num_polling += 1
        try:
            yield
        finally:
            self._num_polling -= 1
            if self.turn.is_crowded:
                self.rank.call_attendant()

    def _wait_beside_others(self, work: ProgressWork, deadline: float) -> None:
        """Wait while something elsewhere is left alone, until the *deadline* or a failure."""
        if not self._elsewhere(work):
            return
        with self.watchdog or nullcontext(), self._polling():
            while (elsewhere := self._elsewhere(work)) and not work.finished and time.monotonic() < deadline:
                if self.failure is not None or (self.watchdog is not None and self.watchdog.has_ended_it):
                    return
                self._advance_all(elsewhere)

    def _elsewhere(self, work: ProgressWork) -> list[Attended]:
        """Return the queues in which something is left alone that a wait for *work* would not advance."""
        elsewhere = self.rank.left_alone(without=self)
        head = None if work.call.lane is None else self._head(None)
        return elsewhere if head is None or head.driver is not None else [*elsewhere, self]

    def _advance_all(self, elsewhere: Sequence[Attended]) -> None:
        """Advance what is in flight here and *elsewhere*, and pause."""
        self._poll_and_observe()
        for queue in elsewhere:
            if queue is not self:
                queue.attend()
        with self.turn.given_away:
            time.sleep(PAUSE_SECONDS)

    def _poll(self) -> None:
        for work in self._in_flight():
            work.advance()
        self._forget_finished()

    def _poll_and_observe(self) -> None:
        self._poll()
        for works in list(self.lanes.values()):
            works[0].observe()
        self._poll()

    def _in_flight(self) -> list[ProgressWork]:
        return [work for works in self.lanes.values() for work in works]

    def _head(self, lane: Lane) -> ProgressWork | None:
        works = self.lanes.get(lane)
        with suppress(IndexError):
            return works[0] if works else None
        return None

    def _drive_head(self, lane: Lane, deadline: float) -> None:
        """Drive the first execution of *lane* to its end, or wait until who does so lets it go."""
        head, thread = self.lanes[lane][0], get_ident()
        with self.watchdog or nullcontext():
            if head.driver is not None:
                self._await(head, deadline)
                return
            self._driving[thread] = deadline
            try:
                head.drive(deadline)
            finally:
                del self._driving[thread]

    def _await(self, head: ProgressWork, deadline: float) -> None:
        """Sleep until the thread that has *head* in hand lets it go, until the *deadline*."""
        left = deadline - time.monotonic()
        if left <= 0:
            wait = self._waits[get_ident()]
            head.expire(wait.seconds - wait.kept)
        self._num_awaiting += 1
        try:
            self.turn.changed.wait(min(left, _MOST_SECONDS))
        finally:
            self._num_awaiting -= 1

    def _forget_finished(self) -> None:
        for lane, works in list(self.lanes.items()):
            while works and works[0].finished:
                works.popleft()
            if not works:
                del self.lanes[lane]

    def _seconds_to_explain(self) -> float:
        """Return how long a failure that is noticed now may take to explain: a wait ends in time."""
        wait = self._waits.get(get_ident())
        kept = self.grace(self.timeout) if wait is None else wait.kept
        left = self.timeout if wait is None else wait.ends - time.monotonic()
        return max(kept, min(left, self.grace(math.inf)))


class _Wait(NamedTuple):
    """A wait of one thread: its seconds, how many of them are kept, when it ends and when it gives up."""

    seconds: float
    kept: float
    ends: float
    gives_up: float


class QueuedTransport:
    """As much of a `collectives.execution.transport.Transport` as its queue does for it."""

    queue: ProgressQueue

    @property
    def turn(self) -> Turn:
        """The turn of the queue; who numbers calls has it, so that they start in that order."""
        return self.queue.turn

    def start(self, execution: Execution, call: Call) -> ProgressWork:
        """Start *execution*; it progresses whenever this rank calls."""
        return self.queue.start(execution, call)

    def poll(self) -> None:
        """Advance what is in flight."""
        self.queue.poll()

    def wait_any(self, works: Sequence[Work], timeout: float | None) -> None:
        """Return when one of *works* is complete."""
        self.queue.complete_any(works, timeout)
