"""Messages by the point-to-point calls of a Gloo process group.

Gloo has tags, which carry the fingerprint.  It cannot say whether an operation is complete without
waiting for it, and a wait that times out closes the connection.  So a receive is watched from
outside: its last bytes are filled with a random pattern, and when they have changed the message
has arrived, and waiting for it does not block.  Should the data equal the pattern, that early
notice is missed and nothing else.  A message of fewer than 8 bytes is followed by 8 that no pattern
equals, so its notice is never missed.

Sends are awaited late: before the memory that they read is written to, and at the end.  The
proof of the program (`collectives.proof.proof`) makes that safe, as in it a step is complete only when
its sends are; but only the first execution of a lane may do so (`collectives.transports.progress`).

No pattern tells when a send has been taken.  A rank that may not wait for one, because it waits for
something else at the same time, has a thread wait for it.

Messages travel as bytes, so that every dtype does.  Tensors on a GPU are staged in host memory.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
import zlib
from collections.abc import Sequence
from datetime import timedelta
from functools import partial

import torch
import torch.distributed as dist

from collectives.execution.call import Call
from collectives.execution.execute import land
from collectives.execution.transport import Execution
from collectives.execution.work import Work
from collectives.program import Local, Operation, Recv, Send, Step
from collectives.program.chunking import Buffer
from collectives.program.render import spell_operation
from collectives.transports.background import start_aside
from collectives.transports.progress import ProgressQueue, ProgressWork
from collectives.transports.store_reports import StoreReports, grace
from collectives.transports.watchdog import Watchdog

_PATTERN_BYTES = 8
_NEVER_SENT = 1 << 30  # a tag beyond those of messages
_MAX_SPARE = 4  # pieces of memory that are kept for later messages


_QUEUES: weakref.WeakSet[ProgressQueue] = weakref.WeakSet()
"""Those of all communicators of this process."""


class GlooTransport:
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
        self.queue = ProgressQueue(timeout, reports.explain, grace, watchdog, _QUEUES)
        _QUEUES.add(self.queue)
        self.clock = self.queue.clock
        self.sends: dict[int, list[_Sending]] = {}
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
        return _Drain(self, fingerprint) if fingerprint in self.sends else None

    def start(self, execution: Execution, call: Call) -> ProgressWork:
        """Start *execution*; it progresses whenever this rank calls."""
        return self.queue.start(execution, call)

    def poll(self) -> None:
        """Advance what is in flight."""
        self.queue.poll()

    def wait_any(self, works: Sequence[Work], timeout: float | None) -> None:
        """Return when one of *works* is complete."""
        self.queue.complete_any(works, timeout)

    def tag(self, fingerprint: int) -> int:
        """Return the Gloo tag for *fingerprint*: 30 bits."""
        return zlib.crc32(f"{self.number}/{fingerprint}".encode()) & 0x3FFF_FFFF

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
                sending.wait(deadline)
            else:
                kept.append(sending)
        if kept:
            self.sends[fingerprint] = kept


class _Sending:
    """A send under way; keeps alive what it reads.  ``over`` when it is known to be."""

    __slots__ = ("_error", "_observer", "data", "group", "over", "peer", "span", "work")

    def __init__(
        self, group: dist.ProcessGroup, work: dist.Work, peer: int, span: tuple[int, int], data: torch.Tensor
    ) -> None:
        self.group = group
        self.work = work
        self.peer = peer
        self.span = span
        self.data = data
        self.over = False
        self._error: Exception | None = None
        self._observer: threading.Thread | None = None

    def overlaps(self, span: tuple[int, int]) -> bool:
        return self.span[0] < span[1] and span[0] < self.span[1]

    def wait(self, deadline: float) -> None:
        if self._observer is None:
            self._wait(deadline)
        else:
            began = time.monotonic()
            self._observer.join(max(deadline - began, 0.001))
            if not self.over:
                raise TimeoutError(_timed_out(began, self._problem()))
        if self._error is not None:
            raise self._error

    def observe(self, timeout: float) -> None:
        if self._observer is None:
            deadline = time.monotonic() + timeout
            close = partial(close_connections, self.group)
            self._observer = start_aside(partial(self._wait_aside, deadline), "observer of a send", close)

    def _wait_aside(self, deadline: float) -> None:
        try:
            self._wait(deadline)
        except Exception as error:
            self._error = error
        self.over = True

    def _wait(self, deadline: float) -> None:
        _wait(self.work, deadline, self._problem())

    def _problem(self) -> str:
        return f"rank {self.peer} has not taken a message"


class _Receiving:
    """A receive under way, and how to see from outside that it has arrived."""

    __slots__ = ("data", "padded", "pattern", "peer", "refusal", "tail", "work")

    def __init__(self, group: dist.ProcessGroup, data: torch.Tensor, peer: int, tag: int) -> None:
        raw = data.view(torch.uint8)
        self.padded = torch.empty(len(raw) + _PATTERN_BYTES, dtype=torch.uint8) if _is_short(raw) else None
        whole = raw if self.padded is None else self.padded
        self.data = data
        self.peer = peer
        self.tail = whole[-_PATTERN_BYTES:].numpy()
        self.pattern = os.urandom(_PATTERN_BYTES - 1) + b"\1"  # never the zeros that follow a short message
        self.tail[:] = memoryview(self.pattern)
        self.work: dist.Work | None = None
        self.refusal: RuntimeError | None = None
        try:
            self.work = group.recv([whole], peer, tag)
        except RuntimeError as error:  # the peer has left, which matters to whoever waits for this message
            self.refusal = error

    def arrived(self) -> bool:
        return self.tail.tobytes() != self.pattern

    def wait(self, deadline: float) -> None:
        problem = f"no message from rank {self.peer}"
        if self.work is None:
            raise ConnectionError(f"{problem}, the connection is closed") from self.refusal
        _wait(self.work, deadline, problem)
        if self.padded is not None:
            raw = self.data.view(torch.uint8)
            raw[:] = self.padded[: len(raw)]


class _GlooStep:
    """A step that has been posted; a `collectives.execution.transport.Handle`."""

    def __init__(self, transport: GlooTransport, step: Step, buffer: Buffer, fingerprint: int) -> None:
        self.transport = transport
        self.step = step
        self.buffer = buffer
        self.fingerprint = fingerprint
        self.incoming: dict[int, torch.Tensor] = {}
        self.receives: dict[int, _Receiving] = {}
        self.staged: dict[int, torch.Tensor] = {}
        tag = transport.tag(fingerprint)

        read = [_span(buffer, operation) for operation in step if isinstance(operation, Send)]
        for position, operation in enumerate(step):
            if isinstance(operation, Local):
                self.incoming[position] = buffer.source(operation, step)
            elif not isinstance(operation, Send):
                into = self._place(position, operation, read)
                self.receives[position] = _Receiving(transport.group, into, operation.peer, tag)

        for operation in step:
            if isinstance(operation, Send):
                data = buffer.view(operation).cpu()
                raw = data.view(torch.uint8)
                if _is_short(raw):
                    data = raw = torch.nn.functional.pad(raw, (0, _PATTERN_BYTES))
                work = transport.group.send([raw], operation.peer, tag)
                span = _span(buffer, operation)
                sending = _Sending(transport.group, work, operation.peer, span, data)
                transport.sends.setdefault(fingerprint, []).append(sending)

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

    def doing(self) -> str:
        return "its last messages have not been taken"


def _is_short(raw: torch.Tensor) -> bool:
    """Return whether a message is too short for a pattern; some zeros then follow it."""
    return len(raw) < _PATTERN_BYTES


def _span(buffer: Buffer, operation: Operation) -> tuple[int, int]:
    return buffer.chunking.span(operation.chunk, operation.num_chunks)


def _wait(work: dist.Work, deadline: float, problem: str) -> None:
    """Wait for a message; raise an error that states the *problem*, and whether time is up."""
    began = time.monotonic()
    try:
        work.wait(timedelta(seconds=max(deadline - began, 0.001)))
    except RuntimeError as error:
        if "Timed out" in str(error):
            raise TimeoutError(_timed_out(began, problem)) from error
        raise ConnectionError(f"{problem}, the connection is closed") from error


def _timed_out(began: float, problem: str) -> str:
    """Say how long it took; the first words are those that Gloo says."""
    return f"Timed out after {time.monotonic() - began:.3g} s: {problem}"


def close_connections(group: dist.ProcessGroup) -> None:
    """Close all connections of a Gloo *group*, so that what waits here, or for this rank, fails at once.

    Gloo does that when a wait times out, so one is made to.  Of a connection that is closed
    already the wait fails without closing the others, hence the loop.
    """
    token = torch.empty(1, dtype=torch.uint8)
    for peer in range(group.size()):
        if peer != group.rank():
            with contextlib.suppress(RuntimeError):
                group.recv([token], peer, _NEVER_SENT).wait(timedelta(milliseconds=1))
