"""Sends under way: what a rank has sent and peers have not yet taken, and who waits until they have.

A transport that awaits sends late (`collectives.execution.transport_model`) lets a rank go on while peers
still take what it has sent.  Two things wait: whatever writes to memory that a send reads, and the end.

A rank that does not wait need not know that a send is over: Gloo tells only whoever waits for it
(`collectives.transports.gloo`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping
from typing import Generic, TypeAlias, TypeVar

Span: TypeAlias = tuple[int, int]
"""Elements ``[start, stop)`` of a buffer and its scratch."""


Send = TypeVar("Send")
"""What a send is known by."""


class SendsUnderWay(Generic[Send]):
    """The sends of one execution on one rank that peers have not yet taken."""

    def __init__(self) -> None:
        self._spans: dict[Send, Span] = {}
        self._unnoticed: dict[Send, Span] = {}
        self._waiting: list[tuple[set[Send], Callable[[], object]]] = []

    def __bool__(self) -> bool:
        return bool(self._spans)

    @property
    def awaited(self) -> list[Send]:
        """The sends that something waits for, in the order in which they were posted."""
        awaited = set().union(*(sends for sends, _ in self._waiting))
        return [send for send in self._spans if send in awaited]

    def add(self, send: Send, span: Span, *, noticed: bool = True) -> None:
        """Note that *send*, which is posted now, reads *span*; is the rank to know when it is over?"""
        self._spans[send] = span
        if not noticed:
            self._unnoticed[send] = span

    def end(self, send: Send) -> None:
        """Note that *send* has been taken, and let go on what waits for it alone."""
        del self._spans[send]
        free = []
        for sends, then in self._waiting:
            sends.discard(send)
            if not sends:
                free.append(then)
        if free:
            self._waiting = [waiting for waiting in self._waiting if waiting[0]]
        for then in free:
            then()

    def when_taken(self, written: Collection[Span] | None, then: Callable[[], object]) -> None:
        """Call *then*, at once or later, when no send reads what is to be *written*.

        None: when no send is left at all.
        """
        for send in _reading(self._unnoticed, written):
            del self._unnoticed[send]
        sends = _reading(self._spans, written)
        if sends:
            self._waiting.append((sends, then))
        else:
            then()

    def are_over(self, written: Collection[Span] | None) -> bool:
        """Return whether the rank knows, without waiting, that no send reads what is to be *written*."""
        return not _reading(self._spans, written) and not _reading(self._unnoticed, written)

    def notice(self) -> None:
        """Let the rank know from now on of every send that was posted so far when it is over."""
        self._unnoticed.clear()


def _reading(spans: Mapping[Send, Span], written: Collection[Span] | None) -> set[Send]:
    """Return the sends that read what is *written*; None: all."""
    if written is None or not spans:
        return set(spans)
    starts: list[int] = []
    stops: list[int] = []
    for start, stop in sorted(written):
        if stops and start <= stops[-1]:
            stops[-1] = max(stop, stops[-1])
        else:
            starts.append(start)
            stops.append(stop)

    def is_written(read: Span) -> bool:
        before = bisect_left(starts, read[1])
        return before > 0 and read[0] < stops[before - 1]

    return {send for send, read in spans.items() if is_written(read)}
