"""A handle on a collective in flight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable


class Waitable(Protocol):
    """Something that can be waited for."""

    def wait(self, timeout: float | None = None) -> None:
        """Return when the result is in place; *timeout* in seconds, by default the group's.

        Raises:
            CollectiveError: the collective failed or timed out; the message names the culprit, and
                what the tensors hold is undefined.
        """

    def is_completed(self) -> bool:
        """Advance what can be advanced without waiting; return whether the result is in place."""


class Work(Waitable, Protocol):
    """What an asynchronous collective returns."""

    @property
    def completed_ps(self) -> int | None:
        """When the result was in place, by the rank's clock; None as long as it is not known to be.

        Exact in virtual time; in real time it is when the completion was noticed.
        """


@runtime_checkable
class Interrupting(Protocol):
    """A `Work` that can interrupt its rank's computation; in real time there is none without a thread."""

    def interrupt(self, handler: Callable[[], None]) -> None:
        """Call *handler* in the rank's thread once the result is in place, should the rank compute then."""


@runtime_checkable
class OnStream(Waitable, Protocol):
    """A `Work` on a stream of a device: to wait for it makes the stream wait that is then current."""

    @property
    def is_known(self) -> bool:
        """Whether the result has values, once it is in place; in a run without data most have none."""
