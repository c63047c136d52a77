"""Transport through shared memory: steps of programs as messages between the processes of one host.

What a send reads is copied into memory that the receiver has mapped, so a step can go on as soon as its
messages have slots; the receiver reduces straight from there.  A rank that waits looks for messages for some
microseconds, giving its core away each time, and then sleeps until one comes.  It also looks whether the
process that it waits for is still there.
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import partial

from collectives.execution.blame import Messages
from collectives.execution.transport import Execution, Transport
from collectives.program import Algorithm, Local, Send, Step
from collectives.program.chunking import Buffer
from collectives.program.program_key import ProgramKey
from collectives.program.render import spell_operation
from collectives.transports.progress import QUEUES, ProgressQueue, QueuedTransport
from collectives.transports.shared_memory import doorbell
from collectives.transports.shared_memory.arena import Arena, Outgoing
from collectives.transports.shared_memory.mailbox import Arrived, Inbox, Outbox, arena_start
from collectives.transports.shared_memory.prepared import (
    PreparedStep,
    Span,
    copies,
    land,
    prepare,
    steps_of,
    write,
)
from collectives.transports.shared_memory.segment import LINE, WORD, Segment
from collectives.transports.store_reports import StoreReports, grace
from collectives.transports.watchdog import Watchdog

_LOOKS = 200
"""How often a rank looks for a message before it sleeps."""

_FAILED = 2 * LINE // WORD
"""The word of a rank's memory in which it says that it has failed."""

_LOOK_AROUND_SECONDS = 0.02
"""Between two looks at whether other processes are still there."""


class SharedMemoryTransport(QueuedTransport):
    """The ranks of one host.

    Args:
        segment: their memory, of this transport alone.
        timeout: seconds that a wait lasts unless told otherwise.
        reports: turn a failure into the error that is raised.
    """

    def __init__(self, segment: Segment, timeout: float, reports: StoreReports) -> None:
        self.segment = segment
        self.rank = segment.rank
        self.world_size = len(segment.parts)
        arena = Arena(segment.own, arena_start(self.world_size))
        peers = [peer for peer in range(self.world_size) if peer != self.rank]
        self.outboxes = {peer: Outbox(segment.parts, arena, self.rank, peer) for peer in peers}
        self.inboxes = {peer: Inbox(segment.parts, self.rank, peer, self.outboxes[peer]) for peer in peers}
        self.broken = ""
        reports.break_off = self._break_off
        reports.gone = self.gone
        watchdog = Watchdog(reports.any_failed, self._break_off, grace(timeout) / 4)
        self.queue = ProgressQueue(timeout, reports.explain, grace, watchdog, QUEUES)
        QUEUES.add(self.queue)
        self.clock = self.queue.clock

    def post(self, step: Step, buffer: Buffer, fingerprint: int) -> _StepInFlight:
        """Start all operations of *step*."""
        return _StepInFlight(self, prepare(step, buffer.chunking), buffer, fingerprint)

    def carry_out(
        self, algorithm: Algorithm, buffer: Buffer, transport: Transport, fingerprint: int
    ) -> Execution:
        """Yield one handle per step of this rank's program, as `collectives.execution.execute.execute` does.

        Steps are prepared once for all calls alike, and steps without messages are done at once.
        """
        key = ProgramKey.of(algorithm)
        for step in steps_of(key, self.rank, self.world_size, buffer.chunking):
            if step.is_local:
                land(step, buffer, copies(step, buffer))
            else:
                yield _StepInFlight(self, step, buffer, fingerprint)
        rest = self.drain(fingerprint)
        if rest is not None:
            yield rest

    def drain(self, fingerprint: int) -> _Unmatched | None:
        """Return a handle on the messages of which the receive has not been posted, if any.

        A step is complete when its sends have been copied; a program ends when others have come as far.
        """
        handle = _Unmatched(self, fingerprint)
        return None if handle.is_complete() else handle

    def exchange(self) -> bool:
        """Take in what has come, and send what there is room for; return whether there was anything."""
        moved = False
        for inbox in self.inboxes.values():
            moved = inbox.poll() or moved
        for outbox in self.outboxes.values():
            if outbox.waiting or outbox.notices:
                moved = outbox.flush() or moved
        return moved

    def gone(self) -> Mapping[int, str]:
        """Return the ranks whose processes have ended, and what became of each."""
        return dict.fromkeys(self.segment.ended(), "its process has ended")

    def look_around(self) -> None:
        """See whether another rank has said in its memory that it has failed."""
        if any(part.words[_FAILED] for part in self.segment.parts):
            self._break_off()

    def _break_off(self) -> None:
        self.segment.own.words[_FAILED] = 1
        self.broken = "broken off: another rank has failed"


class _Handle(ABC):
    """What a rank waits for; a `collectives.execution.transport.Handle`."""

    def __init__(self, transport: SharedMemoryTransport) -> None:
        self.transport = transport

    @abstractmethod
    def is_complete(self) -> bool:
        """Return whether that is so."""

    @abstractmethod
    def awaited(self) -> set[int]:
        """Return the ranks on which it depends."""

    def done(self) -> bool:
        self.transport.exchange()
        return self.is_complete() or bool(self.transport.broken)

    def observe(self, timeout: float) -> None:  # noqa: B027 nothing is to be overridden
        """Do nothing: `done` always tells."""

    def wait(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        looks = 0
        while looks < _LOOKS:
            if self.is_complete():
                return
            if self.transport.exchange():
                looks = 0
            else:
                looks += 1
                os.sched_yield()
        try:
            self._sleep(deadline)
        finally:
            doorbell.awake(self.transport.segment.own)

    def _sleep(self, deadline: float) -> None:
        transport, own = self.transport, self.transport.segment.own
        look_around = 0.0
        while True:
            rings = doorbell.heard(own)
            moved = transport.exchange()
            if self.is_complete():
                return
            now = time.monotonic()
            if now >= look_around:
                self._check_peers()
                transport.look_around()
                look_around = now + _LOOK_AROUND_SECONDS
            if transport.broken:
                raise ConnectionError(transport.broken)
            if now > deadline:
                raise TimeoutError("timed out")
            if not moved:
                doorbell.sleep(own, rings)

    def _check_peers(self) -> None:
        """Check that those on which this depends are still there.

        Raises:
            ConnectionError: a process has ended, and nothing more of it has come.
        """
        ended = self.awaited() & self.transport.segment.ended()
        if ended:
            self.transport.exchange()
            gone = sorted(self.awaited() & ended)
            if gone and not self.is_complete():
                raise ConnectionError(f"the process of rank {gone[0]} has ended")

    def messages(self) -> Messages:
        """Return none: in memory no message is lost."""
        return Messages()


class _StepInFlight(_Handle):
    """A step that has been posted."""

    def __init__(
        self, transport: SharedMemoryTransport, step: PreparedStep, buffer: Buffer, fingerprint: int
    ) -> None:
        super().__init__(transport)
        self.step = step
        self.buffer = buffer
        self.fingerprint = fingerprint
        self.incoming = copies(step, buffer)
        self.left = len(step.receives)
        shared: dict[Span, Outgoing] = {}
        for peer, span, readers in step.sends:
            outgoing = shared.get(span)
            if outgoing is None:
                outgoing = shared[span] = Outgoing(span.of(buffer), readers)
            transport.outboxes[peer].send(fingerprint, outgoing)
        for peer, number in step.receives:
            transport.inboxes[peer].expect(fingerprint, partial(self._deliver, number))

    def _deliver(self, number: int, message: Arrived) -> None:
        self.left -= 1
        data = message.view(self.buffer.data.dtype)
        if self.step.at_once:
            write(self.step.writes[number], self.buffer, data)
        else:
            self.incoming[number] = data.clone()
        message.release()

    def is_complete(self) -> bool:
        """Return whether all has arrived, and all sends have been copied."""
        return not self.left and not self._full()

    def _full(self) -> list[int]:
        """Return to whom something could not be sent yet."""
        outboxes, fingerprint = self.transport.outboxes, self.fingerprint
        return [peer for peer in self.step.receivers if fingerprint in outboxes[peer].waiting]

    def awaited(self) -> set[int]:
        """Return the ranks from which something is missing, or whose mailbox is full."""
        inboxes = self.transport.inboxes
        missing = {peer for peer in self.step.senders if self.fingerprint in inboxes[peer].expected}
        return missing | set(self._full())

    def wait(self, timeout: float) -> None:
        super().wait(timeout)
        land(self.step, self.buffer, self.incoming)

    def doing(self) -> str:
        awaited = self.awaited()
        waiting = [own for own in self.step.step if not isinstance(own, Local | Send) and own.peer in awaited]
        return ", ".join(map(spell_operation, waiting)) or "its messages have not been taken"


class _Unmatched(_Handle):
    """Messages of which their receivers have not posted the receive."""

    def __init__(self, transport: SharedMemoryTransport, fingerprint: int) -> None:
        super().__init__(transport)
        self.fingerprint = fingerprint

    def awaited(self) -> set[int]:
        """Return the receivers."""
        outboxes = self.transport.outboxes.items()
        return {peer for peer, outbox in outboxes if self.fingerprint in outbox.unmatched}

    def is_complete(self) -> bool:
        """Return whether all have been posted."""
        outboxes = self.transport.outboxes.values()
        return not any(self.fingerprint in outbox.unmatched for outbox in outboxes)

    def doing(self) -> str:
        return "its last messages have not been taken"
