"""Calls in flight of a player: from when they begin, which may be to come, until its ranks are through."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import simpy

from collectives.virtual.streams.score import Call
from collectives.virtual.streams.timers import at


@dataclass(slots=True)
class _Flight:
    call: Call
    began_ps: int
    is_begun: bool = False


class Flights:
    """The calls of one player, by their position in the score.

    Args:
        env: the engine.
        begin: begins a call, in the engine.
        keeps_ended: whether it is asked about calls that have ended.
    """

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

    def state(self) -> tuple[object, ...]:
        """Return what the calls of two players have to agree in."""
        return (
            {position: (own.began_ps, own.is_begun) for position, own in self._in_flight.items()},
            self._ended,
        )

    def describe(self) -> str:
        """Return in words which have begun and not ended."""
        return ", ".join(str(flight.call.call) for flight in self._in_flight.values() if flight.is_begun)
