"""Timers of players, and the order of what they do at one instant."""

from __future__ import annotations

from collections.abc import Callable

import simpy
from simpy.events import EventPriority

ENDS = EventPriority(50)
"""Ends of calls, which are gathered over an instant: after the network has settled."""
KERNELS = EventPriority(60)
"""Beginnings of kernels that depend on which calls are in flight then."""
HOSTS = EventPriority(99)
"""Hosts that go on, after all else at an instant."""


class _Timer(simpy.Event):
    def __init__(self, env: simpy.Environment, delay_ps: int, priority: EventPriority) -> None:
        super().__init__(env)
        self._ok, self._value = True, None
        env.schedule(self, priority, delay_ps)


def at(
    env: simpy.Environment,
    time_ps: int,
    action: Callable[[], None],
    priority: EventPriority = simpy.events.NORMAL,
) -> None:
    """Call *action* at *time_ps*, or now if that is over, among what has *priority* then."""
    timer = _Timer(env, max(0, time_ps - int(env.now)), priority)
    assert timer.callbacks is not None
    timer.callbacks.append(lambda _: action())
