"""Queue of a stream: what the host has issued on it that it has not done, and when it has done the rest."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from collectives.virtual.streams.played import Cause
from collectives.virtual.streams.score import Item

Raised = tuple[int, Cause | None]
"""A time, and what it is due to."""


class Queued(NamedTuple):
    """An item on its stream.

    Attributes:
        issued_ps: when the host has issued it.
        position: in the score.
        item: itself.
        host_raised: until when the host had waited last, and for what.
    """

    issued_ps: int
    position: int
    item: Item
    host_raised: Raised


@dataclass(slots=True)
class StreamQueue:
    """One stream.

    Attributes:
        tail_ps: when it has done all that was begun, events awaited included.
        cause: what its tail is due to; None: to its own kernels.
        queue: what is to come.
        held: whether its first item is in flight, awaits an event or is to be settled.
    """

    tail_ps: int
    cause: Cause | None = None
    queue: deque[Queued] = field(default_factory=deque)
    held: bool = False

    def copy(self) -> StreamQueue:
        """Return one that goes on by itself."""
        return StreamQueue(self.tail_ps, self.cause, deque(self.queue), self.held)

    def state(self) -> tuple[object, ...]:
        """Return what two streams have to agree in to go on alike."""
        queue = [(own.issued_ps, own.position, own.host_raised) for own in self.queue]
        return self.tail_ps, self.cause, queue, self.held
