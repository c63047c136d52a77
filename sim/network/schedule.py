"""Schedule of flows, and the ends of instants at which they are settled, after all else that happens then."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from operator import attrgetter

import simpy
from simpy.events import EventPriority

from sim.network.flow import Flow

_ORDER = attrgetter("order")

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


def in_order(flows: Iterable[Flow]) -> list[Flow]:
    """Return *flows* in the order in which they were sent."""
    return sorted(flows, key=_ORDER)


class Schedule:
    """Starts and ends of flows that lie ahead; *settling* is asked for their instants."""

    def __init__(self, settling: Settling) -> None:
        self._settling = settling
        self._starting: dict[int, list[Flow]] = {}
        self._ending: dict[int, list[Flow]] = {}  # a flow whose ``end_ps`` has moved still stands at the old
        self._end_times: list[int] = []

    def start(self, flow: Flow, start_ps: int) -> None:
        """Note that *flow* takes to its links at *start_ps*."""
        if start_ps not in self._starting:
            self._starting[start_ps] = []
            self._settling.at(start_ps)
        self._starting[start_ps].append(flow)

    def starts(self, now: int) -> list[Flow]:
        """Return the flows that start now."""
        return self._starting.pop(now, [])

    def take_back(self, link: int) -> list[Flow]:
        """Return the flows that were to start later, or now, over *link*; they do not."""
        back: list[Flow] = []
        for flows in self._starting.values():
            back += [flow for flow in flows if link in flow.path.links]
            flows[:] = [flow for flow in flows if link not in flow.path.links]
        return back

    def end(self, flow: Flow) -> None:
        """Note that *flow* ends at its ``end_ps``."""
        if flow.end_ps not in self._ending:
            self._ending[flow.end_ps] = []
            heappush(self._end_times, flow.end_ps)
        self._ending[flow.end_ps].append(flow)

    def ends(self, now: int) -> list[Flow]:
        """Return the flows that end now, in the order in which they were sent."""
        flows = self._ending.pop(now, None)
        return in_order({flow for flow in flows if flow.end_ps == now}) if flows else []

    def await_next_end(self) -> None:
        """Settle when the next flow ends; forget times at which, after new rates, none does."""
        while self._end_times:
            end_ps = self._end_times[0]
            if any(flow.end_ps == end_ps for flow in self._ending.get(end_ps, ())):
                self._settling.at(end_ps)
                return
            heappop(self._end_times)
            self._ending.pop(end_ps, None)
