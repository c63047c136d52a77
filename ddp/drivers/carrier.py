"""Carries the reducer's commands out on a communicator, and says what has completed.

Nothing moves by itself over some transports, so every gradient polls what is in flight.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from collectives.communicator import Communicator
from collectives.work import Work
from ddp.drivers.timeline import Timeline


@dataclass(frozen=True, slots=True)
class _Flight:
    work: Work
    nbytes: int
    launched_ps: int


class Carrier:
    """Holds the buckets that are in flight.

    Args:
        communicator: carries the buckets.
        timeline: is told when each was on its way.
    """

    def __init__(self, communicator: Communicator, timeline: Timeline) -> None:
        self._communicator = communicator
        self._timeline = timeline
        self._in_flight: dict[int, _Flight] = {}
        self._queue_free_ps = 0

    def launch(self, bucket: int, nbytes: int, start: Callable[[], Work]) -> None:
        """Start the reduction of a bucket of so many bytes."""
        launched_ps = self._timeline.now_ps()
        self._in_flight[bucket] = _Flight(start(), nbytes, launched_ps)

    def poll(self) -> Iterator[int]:
        """Advance what is in flight; yield what has completed, in the order of launch."""
        self._communicator.poll()
        for bucket, flight in list(self._in_flight.items()):
            if not flight.work.is_completed():
                return
            self.wait(bucket)
            yield bucket

    def wait(self, bucket: int) -> None:
        """Return when the bucket has been reduced."""
        flight = self._in_flight.pop(bucket)
        flight.work.wait()
        end_ps = flight.work.completed_ps or self._timeline.now_ps()
        start_ps = max(flight.launched_ps, self._queue_free_ps)
        self._timeline.span(
            "communication", f"all_reduce bucket {bucket}", start_ps, end_ps, nbytes=flight.nbytes
        )
        self._queue_free_ps = end_ps

    def settle(self) -> None:
        """Wait for all that is in flight, and forget it, and its errors: one has been raised."""
        for flight in self._in_flight.values():
            with contextlib.suppress(Exception):
                flight.work.wait()
        self._in_flight.clear()
