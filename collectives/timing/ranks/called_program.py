"""Program on one rank that goes on when the rank calls: what it holds until then.

Whether the rank's waiting advances it is decided by whoever queues the rank's programs: one rank thread's
`collectives.virtual.progress`, or `collectives.timing.ranks.called_queue` for all ranks together.
"""

from __future__ import annotations

from collections.abc import Callable

import simpy

from collectives.timing.ranks.step_in_flight import Held


class CalledProgram:
    """A `collectives.timing.ranks.step_in_flight.Caller`.

    Args:
        env: whose time it is.
        drives: returns whether the rank waits in this program now.
        lets_go_on: returns whether the rank waits, and that advances this program.

    Attributes:
        held: what goes on when the rank calls, if anything is there to.
        moved: fires when the next step has been posted, or all is over.
    """

    def __init__(
        self, env: simpy.Environment, drives: Callable[[], bool], lets_go_on: Callable[[], bool]
    ) -> None:
        self.held: Held | None = None
        self.moved = simpy.Event(env)
        self._drives = drives
        self._lets_go_on = lets_go_on

    @property
    def is_driving(self) -> bool:
        """Whether the rank waits in this program now."""
        return self._drives()

    def hold(self, held: Held) -> None:
        """Let *held* go on, now if the rank's waiting advances it, or in a later call."""
        self.held = held
        if self._lets_go_on():
            self.move()
        else:
            self.offered()

    def move(self) -> None:
        """Let what is held go on."""
        held, self.held = self.held, None
        assert held is not None
        held.go_on()

    def offered(self) -> None:
        """Note that the rank has done what it can: what it is to post is posted, or all is over."""
        if not self.moved.triggered:
            self.moved.succeed()
