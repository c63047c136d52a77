"""Calls in flight of a player, kernels that are settled by them, and timers of both.

A call is in flight from when it begins, which may be to come, until its ranks are through.  Where
communication takes a share of the device, a kernel's duration depends on the calls in flight when it begins.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush

import simpy
from simpy.events import EventPriority

from collectives.virtual.streams.score import Call

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


@dataclass(slots=True)
class _Flight:
    call: Call
    began_ps: int
    is_begun: bool = False


class Flights:
    """The calls of one player, by their position in the score."""

    def __init__(
        self, env: simpy.Environment, begin: Callable[[int, Call], None], keeps_ended: bool = True
    ) -> None:
        self._env = env
        self._begin = begin
        self._keeps_ended = keeps_ended
        self._in_flight: dict[int, _Flight] = {}
        self._ended: list[tuple[int, int]] = []

    def copy(self, begin: Callable[[int, Call], None]) -> Flights:
        """Return the same calls of another player; those that are to begin, begin for it, too."""
        other = Flights(self._env, begin, self._keeps_ended)
        other._ended = list(self._ended)
        for position, flight in self._in_flight.items():
            if flight.is_begun:
                other._in_flight[position] = _Flight(flight.call, flight.began_ps, is_begun=True)
            else:
                other.start(position, flight.call, flight.began_ps)
        return other

    def start(self, position: int, call: Call, time_ps: int) -> int:
        """Have *call* begun at *time_ps*, or now, if that is over; return by how much it is late."""
        began_ps = max(time_ps, int(self._env.now))
        flight = self._in_flight[position] = _Flight(call, began_ps)

        def begin() -> None:
            flight.is_begun = True
            self._begin(position, call)

        at(self._env, began_ps, begin)
        return began_ps - time_ps

    def end(self, position: int) -> tuple[Call, int]:
        """Note that the call at *position* ends now; return it, and when it began."""
        flight = self._in_flight.pop(position)
        if self._keeps_ended:
            self._ended.append((flight.began_ps, int(self._env.now)))
        return flight.call, flight.began_ps

    def are_any(self, time_ps: int) -> bool:
        """Return whether a call that has begun at *time_ps* has not ended yet."""
        return bool(self._in_flight) and any(own.began_ps <= time_ps for own in self._in_flight.values())

    def were_any(self, time_ps: int) -> bool:
        """Return whether a call was in flight at *time_ps*, the instant of its end left out.

        Nothing earlier is asked for afterwards.
        """
        if self._ended:
            self._ended = [own for own in self._ended if own[1] > time_ps]
            if any(began_ps <= time_ps for began_ps, _ in self._ended):
                return True
        return self.are_any(time_ps)

    def future(self, from_ps: int) -> tuple[object, ...]:
        """Return what the calls of two players have to agree in, if kernels are asked for *from_ps* on."""
        return (
            {position: None if own.is_begun else own.began_ps for position, own in self._in_flight.items()},
            [own for own in self._ended if own[1] > from_ps],
        )

    def describe(self) -> str:
        """Return in words which have begun and not ended."""
        return ", ".join(str(flight.call.call) for flight in self._in_flight.values() if flight.is_begun)


class Settling:
    """Kernels that are first on their streams, in the order in which they begin."""

    def __init__(self, env: simpy.Environment, again: Callable[[], None]) -> None:
        self._env = env
        self._again = again
        self._kernels: list[tuple[int, int, int]] = []
        self._settled_ps = -1
        self._timer_ps: int | None = None

    def copy(self, again: Callable[[], None]) -> Settling:
        """Return the same kernels of another player, which is to play on now."""
        other = Settling(self._env, again)
        other._kernels, other._settled_ps = list(self._kernels), self._settled_ps
        return other

    def add(self, begin_ps: int, position: int, stream: int) -> None:
        """Let the kernel at *position* of the score begin at *begin_ps* on *stream*."""
        heappush(self._kernels, (begin_ps, position, stream))

    def next(self, until_ps: int | None, flights: Flights) -> tuple[int, int] | None:
        """Take the kernel that begins first, if it is known which calls are in flight then.

        Args:
            until_ps: from when on the host may still issue calls, unless the engine comes past the kernel's
                begin first; None: it issues none before the kernel ends.
            flights: the calls.

        Returns:
            When it begins, and its stream; None if that is not known yet.
        """
        if not self._kernels:
            return None
        begin_ps, _, stream = self._kernels[0]
        is_over = begin_ps <= self._settled_ps or begin_ps < self._env.now
        may_come = until_ps is not None and until_ps <= begin_ps
        if not is_over and (may_come or flights.are_any(begin_ps)):
            self._come_back(begin_ps)
            return None
        heappop(self._kernels)
        return begin_ps, stream

    def future(self, from_ps: int) -> tuple[object, ...]:
        """Return what two players have to agree in, if no kernel begins before *from_ps*."""
        return self._kernels, max(self._settled_ps, from_ps - 1)

    def _come_back(self, time_ps: int) -> None:
        """Look again at the end of the instant *time_ps*."""
        if self._timer_ps is not None and self._timer_ps <= time_ps:
            return
        self._timer_ps = time_ps

        def settle() -> None:
            if self._timer_ps == time_ps:
                self._timer_ps = None
            self._settled_ps = max(self._settled_ps, int(self._env.now))
            self._again()

        at(self._env, time_ps, settle, KERNELS)
