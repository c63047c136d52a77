"""The end of an instant of virtual time: after all else that happens at it."""

from __future__ import annotations

from collections.abc import Callable

import simpy
from simpy.events import EventPriority

FLOWS = EventPriority(8)
COFLOWS = EventPriority(9)
LAST = EventPriority(10)
"""Flows are settled after all else that happens at an instant (SimPy's own are 0 and 1), then coflows."""


class _EndOfInstant(simpy.Event):
    """Happens after a delay, and then after all that is of lower priority."""

    callbacks: list[Callable[[simpy.Event], None]]

    def __init__(self, env: simpy.Environment, priority: EventPriority, delay_ps: int) -> None:
        super().__init__(env)
        self._ok = True
        self._value = None
        env.schedule(self, priority, delay_ps)


def end_of_instant(env: simpy.Environment) -> simpy.Event:
    """Return an event that happens after all else at this instant, the settling of flows included."""
    return _EndOfInstant(env, LAST, 0)


class Settling:
    """Calls *settle* at the end of the instants that it is asked for, once at each.

    Args:
        env: its time is an int, in picoseconds.
        priority: `FLOWS` or `COFLOWS`.
        settle: called with the time; from then on it may be asked for the same instant again.
    """

    def __init__(
        self, env: simpy.Environment, priority: EventPriority, settle: Callable[[int], None]
    ) -> None:
        self._env = env
        self._priority = priority
        self._settle = settle
        self._asked_for: set[int] = set()

    def at(self, time_ps: int) -> None:
        """Settle at the end of the instant *time_ps*."""
        if time_ps not in self._asked_for:
            self._asked_for.add(time_ps)
            event = _EndOfInstant(self._env, self._priority, time_ps - int(self._env.now))
            event.callbacks.append(self._end)

    def _end(self, _: simpy.Event) -> None:
        now = int(self._env.now)
        self._asked_for.discard(now)
        self._settle(now)
