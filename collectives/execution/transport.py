"""The seam under the algorithms: what moves the bytes of a step, and whose clock it is."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Protocol

from collectives.execution.call import Call
from collectives.execution.clock import Clock
from collectives.execution.work import Work
from collectives.program import Step
from collectives.program.chunking import Buffer


class Poster(Protocol):
    """As much of a `Transport` as a program needs."""

    @property
    def rank(self) -> int:
        """This rank, from 0."""

    @property
    def world_size(self) -> int:
        """Number of ranks."""

    def post(self, step: Step, buffer: Buffer, channel: int) -> Any:
        """Start all operations of *step* and return a handle on their completion.

        Messages match in order per (source, destination, *channel*); no operation of *step* is
        empty.  The handle is whatever drives the execution knows how to wait for.  It may be
        complete while sends still read from chunks that no later step writes.
        """

    def drain(self, channel: int) -> Any:
        """Return a handle on the sends of *channel* that still read their chunks, or None."""


class Transport(Poster, Protocol):
    """Moves the messages of a step between ranks.

    An implementer decides: how messages of different *channels* are kept apart; where a
    receive is staged (a step's sends read what the chunks held when it began); what a handle
    is; and how an execution, which yields one handle per step, is driven to its end.
    """

    @property
    def clock(self) -> Clock:
        """The time in which this rank lives."""

    def start(self, execution: Generator[Any, Any, None], call: Call) -> Work:
        """Drive *execution*, a generator of handles, to its end; return at once.

        Executions of one lane (``call.lane``) complete in the order in which they were started;
        those of different lanes do not wait for each other.  *call* names the operation in errors.
        """

    def poll(self) -> None:
        """Advance what has been started as far as it goes without waiting."""
