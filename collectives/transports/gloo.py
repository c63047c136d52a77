"""Transport over Gloo: steps of programs by the point-to-point calls of a process group.

Gloo has tags, which carry the fingerprint.  How a message is known to have arrived says
`collectives.transports.gloo_messages`.

Sends are awaited late: before the memory that they read is written to, and at the end.  The
proof of the program (`collectives.proof.proof`) makes that safe, as in it a step is complete only when
its sends are; but only the first execution of a lane may do so (`collectives.transports.progress`).

Messages travel as bytes, so that every dtype does.  Tensors on a GPU are staged in host memory.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from collectives.execution.blame import Messages
from collectives.execution.execute import land
from collectives.program import Local, Operation, Recv, Send, Step
from collectives.program.chunking import Buffer
from collectives.program.render import spell_operation
from collectives.transports.gloo_messages import Receiving, Sending, sent, tag_of
from collectives.transports.progress import ProgressQueue, QueuedTransport
from collectives.transports.rank_queues import QUEUES
from collectives.transports.store_reports import StoreReports, grace
from collectives.transports.watchdog import Watchdog

_MAX_SPARE = 4  # pieces of memory that are kept for later messages


class GlooTransport(QueuedTransport):
    """The ranks of a Gloo group.

    Args:
        group: the process group.
        number: keeps messages of several transports on one group apart; equal on all ranks.
        timeout: seconds that a wait lasts unless told otherwise.
        reports: turn a failure into the error that is raised.
    """

    def __init__(
        self,
        group: dist.ProcessGroup,
        number: int,
        timeout: float,
        reports: StoreReports,
    ) -> None:
        self.group = group
        self.rank = group.rank()
        self.world_size = group.size()
        self.number = number
        watchdog = Watchdog(reports.any_failed, reports.break_off, grace(timeout) / 4)
        self.queue = ProgressQueue(timeout, reports.explain, grace, watchdog, QUEUES)
        self.clock = self.queue.clock
        self.sends: dict[int, list[Sending]] = {}
        self.traffic: defaultdict[int, _Traffic] = defaultdict(_Traffic)
        self._spare: list[torch.Tensor] = []

    def post(self, step: Step, buffer: Buffer, fingerprint: int) -> _GlooStep:
        """Start all operations of *step*."""
        return _GlooStep(self, step, buffer, fingerprint)

    def borrow(self, nbytes: int) -> torch.Tensor:
        """Return at least *nbytes* of host memory for a message; see `give_back`.

        Large allocations come fresh from the kernel each time, page fault by page fault.
        """
        for position, raw in enumerate(self._spare):
            if raw.nbytes >= nbytes:
                return self._spare.pop(position)
        return torch.empty(nbytes, dtype=torch.uint8)

    def give_back(self, raw: torch.Tensor) -> None:
        """Keep *raw* for later messages; of all that is given back, the largest few are kept."""
        self._spare.append(raw)
        self._spare.sort(key=lambda spare: spare.nbytes)
        del self._spare[:-_MAX_SPARE]

    def drain(self, fingerprint: int) -> _Drain | None:
        """Return a handle on the sends that are left at the end."""
        if fingerprint in self.sends:
            return _Drain(self, fingerprint)
        self.traffic.pop(fingerprint, None)
        return None

    def is_read(self, fingerprint: int, span: tuple[int, int]) -> bool:
        """Return whether a send under *fingerprint* that reads elements of *span* is under way."""
        return any(sending.overlaps(span) and not sending.over for sending in self.sends.get(fingerprint, ()))

    def observe_sends(self, fingerprint: int, timeout: float) -> None:
        """Have it noticed when the sends under *fingerprint* have been taken."""
        for sending in self.sends.get(fingerprint, ()):
            sending.observe(timeout)

    def await_sends(self, fingerprint: int, span: tuple[int, int] | None, deadline: float) -> None:
        """Wait for the sends under *fingerprint* that read elements of *span*, or for all."""
        kept = []
        for sending in self.sends.pop(fingerprint, []):
            if span is None or sending.overlaps(span):
                with self.turn.given_away:
                    sending.wait(deadline)
            else:
                kept.append(sending)
        if kept:
            self.sends[fingerprint] = kept


@dataclass(frozen=True)
class _Traffic:
    """Messages of a program so far.

    Attributes:
        sent: how many, by receiver.
        received: how many receives were posted, by sender.
    """

    sent: Counter[int] = field(default_factory=Counter)
    received: Counter[int] = field(default_factory=Counter)


class _GlooStep:
    """A step that has been posted; a `collectives.execution.transport.Handle`."""

    def __init__(self, transport: GlooTransport, step: Step, buffer: Buffer, fingerprint: int) -> None:
        self.transport = transport
        self.step = step
        self.buffer = buffer
        self.fingerprint = fingerprint
        self.incoming: dict[int, torch.Tensor] = {}
        self.receives: dict[int, Receiving] = {}
        self.staged: dict[int, torch.Tensor] = {}
        tag, traffic = tag_of(transport.number, fingerprint), transport.traffic[fingerprint]

        read = [_span(buffer, operation) for operation in step if isinstance(operation, Send)]
        for position, operation in enumerate(step):
            if isinstance(operation, Local):
                self.incoming[position] = buffer.source(operation, step)
            elif not isinstance(operation, Send):
                into = self._place(position, operation, read)
                self.receives[position] = Receiving(transport.group, into, operation.peer, tag)
                traffic.received[operation.peer] += 1

        for operation in step:
            if isinstance(operation, Send):
                data, span = buffer.view(operation).cpu(), _span(buffer, operation)
                sending = sent(transport.group, data, operation.peer, tag, span)
                transport.sends.setdefault(fingerprint, []).append(sending)
                traffic.sent[operation.peer] += 1

    def done(self) -> bool:
        return self._all_arrived() and not any(
            self.transport.is_read(self.fingerprint, _span(self.buffer, self.step[position]))
            for position in (*self.incoming, *self.staged)
        )

    def observe(self, timeout: float) -> None:
        if self._all_arrived():
            self.transport.observe_sends(self.fingerprint, timeout)

    def _all_arrived(self) -> bool:
        return all(receiving.arrived() for receiving in self.receives.values())

    def wait(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        for position, receiving in list(self.receives.items()):
            with self.transport.turn.given_away:
                receiving.wait(deadline)
            del self.receives[position]
            if position in self.staged:
                self.incoming[position] = receiving.data.to(self.buffer.data.device)
        for position in self.incoming:
            span = _span(self.buffer, self.step[position])
            self.transport.await_sends(self.fingerprint, span, deadline)
        land(self.step, self.buffer, self.incoming)
        for raw in self.staged.values():
            self.transport.give_back(raw)

    def doing(self) -> str:
        waiting = ", ".join(spell_operation(self.step[position]) for position in self.receives)
        return waiting or "its messages have not been taken"

    def messages(self) -> Messages:
        traffic = self.transport.traffic[self.fingerprint]
        pending = Counter(receiving.peer for receiving in self.receives.values())
        awaited = {peer: traffic.received[peer] - number + 1 for peer, number in pending.items()}
        return Messages(dict(traffic.sent), awaited)

    def _place(self, position: int, operation: Operation, read: list[tuple[int, int]]) -> torch.Tensor:
        """Return where to receive: in place if nothing reads there."""
        target: torch.Tensor = self.buffer.view(operation)
        span = _span(self.buffer, operation)
        if isinstance(operation, Recv) and target.device.type == "cpu":
            if self.transport.queue.wait_until is not None:
                self.transport.await_sends(self.fingerprint, span, self.transport.queue.wait_until)
            read_here = any(start < span[1] and span[0] < stop for start, stop in read)
            if not read_here and not self.transport.is_read(self.fingerprint, span):
                return target
        raw = self.staged[position] = self.transport.borrow(target.nbytes)
        return raw[: target.nbytes].view(target.dtype)


class _Drain:
    """The sends that are left at the end of an execution; a `collectives.execution.transport.Handle`."""

    def __init__(self, transport: GlooTransport, fingerprint: int) -> None:
        self.transport = transport
        self.fingerprint = fingerprint

    def done(self) -> bool:
        return all(sending.over for sending in self.transport.sends[self.fingerprint])

    def observe(self, timeout: float) -> None:
        self.transport.observe_sends(self.fingerprint, timeout)

    def wait(self, timeout: float) -> None:
        self.transport.await_sends(self.fingerprint, None, time.monotonic() + timeout)
        self.transport.traffic.pop(self.fingerprint, None)

    def doing(self) -> str:
        return "its last messages have not been taken"

    def messages(self) -> Messages:
        return Messages(dict(self.transport.traffic[self.fingerprint].sent))


def _span(buffer: Buffer, operation: Operation) -> tuple[int, int]:
    return buffer.chunking.span(operation.chunk, operation.num_chunks)
