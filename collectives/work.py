"""A handle on a collective in flight."""

from __future__ import annotations

from typing import Protocol


class Work(Protocol):
    """What an asynchronous collective returns."""

    def wait(self, timeout: float | None = None) -> None:
        """Return when the result is in place; *timeout* in seconds, by default the group's.

        Raises:
            CollectiveError: the collective failed or timed out; the message names the culprit.
        """

    def is_completed(self) -> bool:
        """Advance what can be advanced without waiting; return whether the result is in place."""
