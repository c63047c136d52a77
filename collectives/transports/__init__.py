"""The seam under the algorithms: what moves the bytes of a step, and whose clock it is."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Protocol

from collectives.chunking import Buffer
from collectives.clock import Clock
from collectives.program import Step
from collectives.work import Work


class Transport(Protocol):
    """Moves the messages of a step between ranks.

    An implementer decides: how messages of different *channels* are kept apart; where a
    receive is staged (a step's sends read what the chunks held when it began); what a handle
    is; and how an execution, which yields one handle per step, is driven to its end.
    """

    @property
    def rank(self) -> int:
        """This rank, from 0."""

    @property
    def world_size(self) -> int:
        """Number of ranks."""

    @property
    def clock(self) -> Clock:
        """The time in which this rank lives."""

    def post(self, step: Step, buffer: Buffer, channel: int) -> Any:
        """Start all operations of *step* and return a handle on their completion.

        Messages match in order per (source, destination, *channel*).  The handle is whatever
        `start` knows how to wait for.
        """

    def start(self, execution: Generator[Any, None, None], description: str) -> Work:
        """Drive *execution*, a generator of handles, to its end; return at once.

        Executions of one transport run in the order in which they were started.
        *description* names the operation in errors.
        """
