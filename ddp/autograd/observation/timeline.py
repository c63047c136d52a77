"""Timeline of one rank: computation is charged to its clock, and all spans go to a recorder.

A rank computes whenever it is not inside the driver.  So the driver says when it hands control
back (`resume`), and when it is called again, what has been computed meanwhile (`computed`).
"""

from __future__ import annotations

from typing import Any, Protocol

from collectives.communicators.communicator import Communicator


class SpanRecorder(Protocol):
    """A note-taker of the spans of a run, such as `sim.Trace`."""

    def span(self, rank: int, track: str, name: str, start_ps: int, end_ps: int, **args: Any) -> None:
        """Note that *name* ran on *track* of *rank*."""


class RankTimeline:
    """The time of one rank.

    Args:
        communicator: gives the clock and the rank.
        recorder: is told the spans, in picoseconds of that clock; None: nobody is.

    Attributes:
        latest_ps: when the clock was last looked at by `resume` or `computed`.
        matters: whether anybody asks what was computed between two gradients: a recorder, or a clock
            that must be charged.
    """

    def __init__(self, communicator: Communicator, recorder: SpanRecorder | None = None) -> None:
        self._rank = communicator.rank
        self._clock = communicator.clock
        self._recorder = recorder
        self.matters = recorder is not None or self._clock.must_be_charged
        self.latest_ps = self._clock.now_ps()

    def now_ps(self) -> int:
        """Return the rank's time."""
        return self._clock.now_ps()

    def resume(self) -> None:
        """Take note that the rank goes on computing."""
        self.latest_ps = self._clock.now_ps()

    def computed(self, name: str) -> None:
        """Charge *name* to the clock; it has run since the rank went on computing."""
        self._clock.charge(name)
        now_ps = self._clock.now_ps()
        if self._recorder is not None and now_ps > self.latest_ps:
            self.span("compute", name, self.latest_ps, now_ps)
        self.latest_ps = now_ps

    def span(self, track: str, name: str, start_ps: int, end_ps: int, **args: Any) -> None:
        """Tell the recorder, if there is one."""
        if self._recorder is not None:
            self._recorder.span(self._rank, track, name, start_ps, end_ps, **args)
