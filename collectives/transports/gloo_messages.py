"""Messages over Gloo: a send and a receive under way, of which one is watched from outside.

Gloo cannot say whether an operation is complete without waiting for it, and a wait that times out closes the
connection.  So a receive is watched from outside: its last bytes are filled with a random pattern, and when
they have changed the message has arrived, and waiting for it does not block.  Should the data equal the
pattern, that early notice is missed and nothing else.  A message of fewer than 8 bytes is followed by 8 that
no pattern equals, so its notice is never missed.

No pattern tells when a send has been taken.  A rank that may not wait for one, because it waits for
something else at the same time, has a thread wait for it.
"""

from __future__ import annotations

import contextlib
import os
import time
import zlib
from datetime import timedelta
from functools import partial

import torch
import torch.distributed as dist

from collectives.transports.background import ShortTask

_PATTERN_BYTES = 8
_CLOSING, CHECKING = 1 << 30, (1 << 30) + 1  # tags beyond those of messages, under which none is ever sent


def tag_of(scope: object, fingerprint: int) -> int:
    """Return the Gloo tag, of 30 bits, for *fingerprint*; *scope* keeps transports on one group apart."""
    return zlib.crc32(f"{scope}/{fingerprint}".encode()) & 0x3FFF_FFFF


class Sending:
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
        self._observer: ShortTask | None = None

    def overlaps(self, span: tuple[int, int]) -> bool:
        """Return whether it reads what lies in *span*, in elements."""
        return self.span[0] < span[1] and span[0] < self.span[1]

    def wait(self, deadline: float) -> None:
        """Return when it has been taken.

        Raises:
            TimeoutError: it has not been at the *deadline* (`time.monotonic`).
            ConnectionError: the connection is closed.
        """
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
        """Let a thread wait for it, for at most *timeout* seconds."""
        if self._observer is None:
            deadline = time.monotonic() + timeout
            close = partial(close_connections, self.group)
            self._observer = ShortTask(partial(self._wait_aside, deadline), close)

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


class Receiving:
    """A receive under way, and how to see from outside that it has arrived."""

    __slots__ = ("data", "padded", "pattern", "peer", "refusal", "tail", "work")

    def __init__(self, group: dist.ProcessGroup, data: torch.Tensor, peer: int, tag: int) -> None:
        raw = data.view(torch.uint8)
        is_short = len(raw) < _PATTERN_BYTES
        self.padded = torch.empty(len(raw) + _PATTERN_BYTES, dtype=torch.uint8) if is_short else None
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
        """Return whether it is there, so that to wait for it does not block."""
        return self.tail.tobytes() != self.pattern

    def wait(self, deadline: float) -> None:
        """Return when it is there.

        Raises:
            TimeoutError: it is not at the *deadline* (`time.monotonic`).
            ConnectionError: the connection is closed.
        """
        problem = f"no message from rank {self.peer}"
        if self.work is None:
            raise ConnectionError(f"{problem}, the connection is closed") from self.refusal
        _wait(self.work, deadline, problem)
        if self.padded is not None:
            raw = self.data.view(torch.uint8)
            raw[:] = self.padded[: len(raw)]


def sent(group: dist.ProcessGroup, data: torch.Tensor, peer: int, tag: int, span: tuple[int, int]) -> Sending:
    """Start to send *data*, of host memory, to *peer*, followed by zeros if it is too short for a pattern.

    It is read from the elements of a buffer in *span*.
    """
    raw = data.view(torch.uint8)
    if len(raw) < _PATTERN_BYTES:
        data = raw = torch.nn.functional.pad(raw, (0, _PATTERN_BYTES))
    return Sending(group, group.send([raw], peer, tag), peer, span, data)


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
                group.recv([token], peer, _CLOSING).wait(timedelta(milliseconds=1))
