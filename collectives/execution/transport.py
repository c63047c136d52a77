"""Transport: the seam under the algorithms, which moves the bytes of a step.

A program under way is an `Execution`: it posts a step, yields the handle that it gets for it, and goes on
when the step is complete.  What a handle is, only the two who use it need to know: a transport, which
returns it, and whoever drives the execution and waits.  In virtual time it is a SimPy event.  In real time
`collectives.transports.progress` drives executions for all transports that can say when a step is complete,
by the four methods of a `Handle`; on the streams of NCCL the host only enqueues.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Protocol, TypeAlias

from collectives.execution.blame import Messages
from collectives.execution.call import Call
from collectives.execution.clock import Clock
from collectives.execution.work import Work
from collectives.program import Step
from collectives.program.chunking import Buffer

Execution: TypeAlias = Generator[Any, Any, None]
"""A program under way on one rank: yields one handle for each step, and goes on when that is complete."""


class Handle(Protocol):
    """A step in flight in real time."""

    def done(self) -> bool:
        """Return, without waiting, whether the step is known to be complete."""

    def observe(self, timeout: float) -> None:
        """See to it, without waiting, that `done` will tell when peers have taken what was sent.

        Only for the first execution of a lane.  After *timeout* seconds the step has failed.
        """

    def wait(self, timeout: float) -> None:
        """Complete the step: its writes have landed.  Raises after *timeout* seconds."""

    def doing(self) -> str:
        """Return what the step waits for, in words."""

    def messages(self) -> Messages:
        """Return which messages of the program have been sent, and which are awaited, if that is known."""


class Poster(Protocol):
    """As much of a `Transport` as a program needs."""

    @property
    def rank(self) -> int:
        """This rank, from 0."""

    @property
    def world_size(self) -> int:
        """Number of ranks."""

    def post(self, step: Step, buffer: Buffer, fingerprint: int) -> Any:
        """Start all operations of *step* and return a handle on their completion.

        Messages match in order per (source, destination, *fingerprint*); no operation of *step* is
        empty.  The handle is whatever drives the execution knows how to wait for.  It may be
        complete while sends still read from chunks that no later step writes.
        """

    def drain(self, fingerprint: int) -> Any:
        """Return a handle on sends under *fingerprint* that still read their chunks, or None.

        Only the end of a program tells which sends no later step waits for, and only then may somebody
        write to the buffer again.  A transport whose steps are complete when their sends are returns None.
        """


class Transport(Poster, Protocol):
    """Moves the messages of a step between ranks.

    An implementer decides: how messages of different *fingerprints* are kept apart; where a
    receive is staged (a step's sends read what the chunks held when it began); what a handle
    is; and how an execution, which yields one handle per step, is driven to its end.
    """

    @property
    def clock(self) -> Clock:
        """The time in which this rank lives."""

    def start(self, execution: Execution, call: Call) -> Work:
        """Drive *execution* to its end; return at once.

        Executions of one lane (``call.lane``) complete in the order in which they were started;
        those of different lanes do not wait for each other.  *call* names the operation in errors.
        """

    def poll(self) -> None:
        """Advance what has been started as far as it goes without waiting."""
