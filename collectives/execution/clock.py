"""The time in which a rank lives: real, or virtual."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A rank's own clock."""

    @property
    def must_be_charged(self) -> bool:
        """Whether computation takes only the time that is charged for it, as in virtual time."""

    def now_ps(self) -> int:
        """Return this rank's time in integer picoseconds since an arbitrary zero."""

    def charge(self, work: str) -> None:
        """Let the time pass that *work* costs.

        *work* names a piece of computation that has just been done, such as ``forward`` or
        ``gradient:conv1.weight``.  In real time it has already passed and nothing happens; in
        virtual time the cluster's compute model says how long it takes.
        """


class RealClock:
    """The machine's monotonic clock."""

    must_be_charged = False

    def now_ps(self) -> int:
        """Return the monotonic time in picoseconds."""
        return time.perf_counter_ns() * 1000

    def charge(self, work: str) -> None:
        """Do nothing: real time passes by itself."""
