"""Threads of one process as ranks, in real time.

The whole contract of a transport in one page, and nothing to install: the reference for those
who write another.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from collectives.errors import CollectiveError
from collectives.execution.blame import Messages, Report, diagnose, judge
from collectives.execution.call import Call
from collectives.execution.execute import land
from collectives.execution.matching import Matching
from collectives.execution.transport import Execution
from collectives.program import Local, Recv, RecvReduce, Send, Step
from collectives.program.chunking import Buffer
from collectives.program.render import spell_operation
from collectives.transports.progress import ProgressQueue, QueuedTransport
from collectives.transports.progress_work import ProgressWork

DEFAULT_TIMEOUT = 60.0
"""Seconds that a collective waits for its peers unless told otherwise."""

T = TypeVar("T")


class ThreadMeetingPoint:
    """The messages that the threads have posted and that are not yet matched, under one lock."""

    def __init__(self, world_size: int) -> None:
        self.world_size = world_size
        self.changed = threading.Condition()
        self.matching: Matching[tuple[_StepInFlight, int]] = Matching()
        self.reports: dict[int, Report | None] = dict.fromkeys(range(world_size))
        self.broken = ""
        self.gone: set[int] = set()

    def leave(self, rank: int) -> None:
        """Record that *rank* has returned: what others still want of it will never come."""
        with self.changed:
            self.gone.add(rank)
            self.changed.notify_all()

    def break_off(self, reason: str) -> None:
        """Fail everything that waits, now and later: a rank is gone."""
        with self.changed:
            self.broken = self.broken or reason
            self.changed.notify_all()


class ThreadedTransport(QueuedTransport):
    """One rank's side of a `ThreadMeetingPoint`."""

    def __init__(
        self, meeting_point: ThreadMeetingPoint, rank: int, timeout: float = DEFAULT_TIMEOUT
    ) -> None:
        self.meeting_point = meeting_point
        self.rank = rank
        self.world_size = meeting_point.world_size
        self.queue = ProgressQueue(timeout, self._explain)
        self.clock = self.queue.clock

    def post(self, step: Step, buffer: Buffer, fingerprint: int) -> _StepInFlight:
        """Start all operations of *step*."""
        in_flight = _StepInFlight(self.meeting_point, step, buffer)
        with self.meeting_point.changed:
            for position, operation in enumerate(step):
                if isinstance(operation, Local):
                    in_flight.incoming[position] = buffer.source(operation, step)
                    continue
                met = self.meeting_point.matching.post(
                    self.rank, operation, fingerprint, (in_flight, position)
                )
                if met is not None:
                    _deliver(*met)
            self.meeting_point.changed.notify_all()
        return in_flight

    def drain(self, fingerprint: int) -> None:
        """Return None: a step is complete when its sends are."""

    def start(self, execution: Execution, call: Call) -> ProgressWork:
        """Start *execution*; it progresses whenever this rank calls."""
        with self.meeting_point.changed:
            self.meeting_point.reports[self.rank] = Report(call, "posted", tuple(self.queue.recent))
        return super().start(execution, call)

    def _explain(self, report: Report, error: Exception, seconds: float) -> CollectiveError:
        with self.meeting_point.changed:
            self.meeting_point.reports[self.rank] = report
            reports = dict(self.meeting_point.reports)
            gone = dict.fromkeys(sorted(self.meeting_point.gone), "")
        return diagnose(self.rank, report, reports, str(error), judge(reports, gone))


class _StepInFlight:
    """A step that has been posted; a `collectives.execution.transport.Handle`."""

    def __init__(self, meeting_point: ThreadMeetingPoint, step: Step, buffer: Buffer) -> None:
        self.meeting_point = meeting_point
        self.step = step
        self.buffer = buffer
        self.incoming: dict[int, Any] = {}
        self.outstanding = {n for n, operation in enumerate(step) if not isinstance(operation, Local)}

    def done(self) -> bool:
        return not self.outstanding or bool(self._hopeless())

    def observe(self, timeout: float) -> None:
        """Do nothing: `done` always tells."""

    def wait(self, timeout: float) -> None:
        started = time.monotonic()
        with self.meeting_point.changed:
            self.meeting_point.changed.wait_for(self.done, timeout)
            if self.outstanding:
                waited = f"timed out after {time.monotonic() - started:.3g} s"
                raise TimeoutError(self._hopeless() or waited)
        land(self.step, self.buffer, self.incoming)

    def _hopeless(self) -> str:
        """Return why this step can never complete, or nothing."""
        peers = {operation.peer for operation in self._waiting()}
        gone = sorted(peers & self.meeting_point.gone)
        return self.meeting_point.broken or (f"cannot complete: rank {gone[0]} has returned" if gone else "")

    def _waiting(self) -> list[Send | Recv | RecvReduce]:
        operations = (self.step[position] for position in sorted(self.outstanding))
        return [operation for operation in operations if not isinstance(operation, Local)]

    def doing(self) -> str:
        return ", ".join(map(spell_operation, self._waiting()))

    def messages(self) -> Messages:
        """Return none: between threads no message is lost."""
        return Messages()


def _deliver(send: tuple[_StepInFlight, int], receive: tuple[_StepInFlight, int]) -> None:
    (sender, sent), (receiver, received) = send, receive
    receiver.incoming[received] = sender.buffer.snapshot(sender.step[sent])  # type: ignore[arg-type]
    sender.outstanding.discard(sent)
    receiver.outstanding.discard(received)


def run_threads(
    function: Callable[[ThreadedTransport], T], world_size: int, timeout: float = DEFAULT_TIMEOUT
) -> list[T]:
    """Run *function* on *world_size* rank threads; return the results by rank.

    Raises:
        Exception: that of the first rank that failed; the others are broken off.
    """
    if world_size < 1:
        raise ValueError(f"world_size must be at least 1, got {world_size}")
    meeting_point = ThreadMeetingPoint(world_size)
    results: list[Any] = [None] * world_size
    failures: list[tuple[int, BaseException]] = []

    def run(rank: int) -> None:
        try:
            results[rank] = function(ThreadedTransport(meeting_point, rank, timeout))
            meeting_point.leave(rank)
        except BaseException as error:
            failures.append((rank, error))
            meeting_point.break_off(f"broke off: rank {rank} raised {type(error).__name__}: {error}")

    threads = [
        threading.Thread(target=run, args=(rank,), name=f"rank {rank}", daemon=True)
        for rank in range(world_size)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0][1]
    return results
