"""An in-order queue in virtual time, as a CUDA stream is one in real time."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import simpy


class Stream:
    """Runs operations one after another, in the order in which they were submitted."""

    def __init__(self, env: simpy.Environment) -> None:
        self._env = env
        self._free = env.event().succeed()

    def submit(
        self, factory: Callable[[], Generator[simpy.Event, Any, Any]], not_before_ps: int = 0
    ) -> simpy.Process:
        """Queue an operation and return a SimPy event that fires when it is done.

        The operation begins when all before it are done and the time is at least
        *not_before_ps* (picoseconds, absolute).  Only then is *factory* called; its generator
        runs as a SimPy process.  The event's value is what the generator returns.

        An operation that raises fails its own event, and the queue goes on with the next; as
        with every SimPy process, a failure that nobody waits for is raised by ``env.run``.
        """
        turn, self._free = self._free, self._env.event()
        return self._env.process(self._run(turn, self._free, factory, not_before_ps))

    def _run(
        self,
        turn: simpy.Event,
        done: simpy.Event,
        factory: Callable[[], Generator[simpy.Event, Any, Any]],
        not_before_ps: int,
    ) -> Generator[simpy.Event, Any, Any]:
        yield turn
        if self._env.now < not_before_ps:
            yield self._env.timeout(not_before_ps - int(self._env.now))
        try:
            return (yield from factory())
        finally:
            done.succeed()
