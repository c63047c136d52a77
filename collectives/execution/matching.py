"""Matching of sends and receives: the one rule by which messages find each other.

From one rank to another, under one fingerprint, the n-th send that is posted meets the n-th receive that is
posted, whichever of the two comes first.  Nothing else matters: not the size, not the step, not the
time.  So what a message brings is decided by the programs alone, and is the same on threads, in
virtual time and in a proof; transports over libraries that match messages themselves must do the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeAlias, TypeVar

from collectives.program import Recv, RecvReduce, Send

Side = TypeVar("Side")
"""One side of a message: all that whoever posts it will need when it meets the other."""

Queues: TypeAlias = dict[tuple[int, int, int], deque[Side]]
"""By source, destination and fingerprint; none is empty."""


class Matching(Generic[Side]):
    """Messages of which one side has been posted, and the other has not."""

    def __init__(self) -> None:
        self._sends: Queues[Side] = {}
        self._receives: Queues[Side] = {}

    def post(
        self, rank: int, operation: Send | Recv | RecvReduce, fingerprint: int, side: Side
    ) -> tuple[Side, Side] | None:
        """Post *operation* of *rank*: return both sides of its message, the sender's first, if they have met.

        None: *side* waits for the other.
        """
        if isinstance(operation, Send):
            key = rank, operation.peer, fingerprint
            other = _next(self._receives, key)
            if other is not None:
                return side, other
            _append(self._sends, key, side)
        else:
            key = operation.peer, rank, fingerprint
            other = _next(self._sends, key)
            if other is not None:
                return other, side
            _append(self._receives, key, side)
        return None

    def waiting(self) -> Iterator[tuple[int, Side]]:
        """Yield the sides that wait, each with the rank that has posted it."""
        for (source, _, _), sides in self._sends.items():
            yield from ((source, side) for side in sides)
        for (_, destination, _), sides in self._receives.items():
            yield from ((destination, side) for side in sides)

    def forget(self, rank: int) -> None:
        """Drop what *rank* has posted and what waits."""
        for key in [key for key in self._sends if key[0] == rank]:
            del self._sends[key]
        for key in [key for key in self._receives if key[1] == rank]:
            del self._receives[key]


def _next(queues: Queues[Side], key: tuple[int, int, int]) -> Side | None:
    """Take the side that has waited longest under *key*, if any does."""
    sides = queues.get(key)
    if sides is None:
        return None
    side = sides.popleft()
    if not sides:
        del queues[key]
    return side


def _append(queues: Queues[Side], key: tuple[int, int, int], side: Side) -> None:
    sides = queues.get(key)
    if sides is None:
        queues[key] = deque((side,))
    else:
        sides.append(side)
