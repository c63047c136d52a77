"""Transport through shared memory: steps of programs as messages between the processes of a host.

What a send reads is copied into memory that the receiver has mapped, so a step can go on as soon as its
messages have slots; the receiver reduces straight from there.  A tensor of `SharedMemoryTransport.memory` is
there already and is not copied.  A rank that waits looks for messages for some microseconds, giving its core
away each time, and then sleeps until one comes.  It also looks whether the process that it waits for is still
there.  Messages to ranks of other hosts go over Gloo (`collectives.transports.shared_memory.far`).
"""

from __future__ import annotations

import torch

from collectives.execution.transport import Execution, Transport
from collectives.program import Algorithm, Step
from collectives.program.chunking import Buffer
from collectives.program.program_key import ProgramKey
from collectives.transports.progress import ProgressQueue, QueuedTransport
from collectives.transports.rank_queues import QUEUES
from collectives.transports.shared_memory.far import Distance
from collectives.transports.shared_memory.in_flight import StepInFlight, Unmatched
from collectives.transports.shared_memory.mailroom import Mailroom
from collectives.transports.shared_memory.prepared import copies, land, prepare, steps_of
from collectives.transports.shared_memory.segment import Segment
from collectives.transports.store_reports import StoreReports, grace
from collectives.transports.watchdog import Watchdog


class SharedMemoryTransport(QueuedTransport):
    """The ranks of a host, or of several.

    Args:
        segment: their memory, of this transport alone.
        timeout: seconds that a wait lasts unless told otherwise.
        reports: turn a failure into the error that is raised.
        distance: the way to ranks on other hosts, if there are any.
    """

    def __init__(
        self, segment: Segment, timeout: float, reports: StoreReports, distance: Distance | None = None
    ) -> None:
        self.rank = segment.rank
        self.world_size = segment.world_size
        self.mailroom = Mailroom(segment, distance)
        reports.break_off = self.mailroom.break_off
        reports.gone = self.mailroom.gone
        watchdog = Watchdog(reports.any_failed, self.mailroom.break_off, grace(timeout) / 4)
        self.queue = ProgressQueue(timeout, reports.explain, grace, watchdog, QUEUES, takes_messages=True)
        self.mailroom.share_turn(self.queue.turn)
        self.clock = self.queue.clock

    def post(self, step: Step, buffer: Buffer, fingerprint: int) -> StepInFlight:
        """Start all operations of *step*."""
        return StepInFlight(self.mailroom, prepare(step, buffer.chunking), buffer, fingerprint)

    def carry_out(
        self, algorithm: Algorithm, buffer: Buffer, transport: Transport, fingerprint: int
    ) -> Execution:
        """Yield one handle per step of this rank's program, as `collectives.execution.execute.execute` does.

        Steps are prepared once for all calls alike, and steps without messages are done at once.
        """
        key = ProgramKey.of(algorithm)
        for step in steps_of(key, self.rank, self.world_size, buffer.chunking):
            if step.is_local and not self.mailroom.loans.under(fingerprint, step.written):
                land(step, buffer, copies(step, buffer))
            else:
                yield StepInFlight(self.mailroom, step, buffer, fingerprint)
        rest = self.drain(fingerprint)
        if rest is not None:
            yield rest

    def drain(self, fingerprint: int) -> Unmatched | None:
        """Return a handle on the messages of which the receive has not been posted, if any.

        A step is complete when its sends have been copied; a program ends when others have come as far.
        """
        handle = Unmatched(self.mailroom, fingerprint)
        return None if handle.is_complete() else handle

    def memory(self, nbytes: int) -> torch.Tensor | None:
        """Return memory that messages are read from without a copy, or None where there is not as much."""
        with self.queue.turn:
            return self.mailroom.arena.tensor(nbytes)
