"""Settling of kernels whose duration depends on the calls that are in flight when they begin."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

import simpy

from collectives.virtual.streams.flights import Flights
from collectives.virtual.streams.timers import KERNELS, at


class Settling:
    """Kernels that are first on their streams, in the order in which they begin.

    Args:
        env: the engine.
        again: called in the engine when more may be known.
    """

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

    def state(self) -> object:
        """Return what two players have to agree in."""
        return self._kernels

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
