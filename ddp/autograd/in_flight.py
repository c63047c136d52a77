"""Carries the reducer's commands out on a communicator, and says what has completed.

Nothing moves by itself over some transports, so every gradient polls what is in flight.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from collectives.communicators.communicator import Communicator
from collectives.execution.work import Work
from ddp.autograd.timeline import Timeline
from ddp.reduction.timings import BucketRun


@dataclass(frozen=True, slots=True)
class _Flight:
    work: Work
    nbytes: int
    launched_ps: int
    collective: str


@dataclass(frozen=True, slots=True)
class Landed:
    """A collective that has completed; times as of `BucketRun`, but by the rank's clock."""

    bucket: int
    collective: str
    nbytes: int
    launched_ps: int
    start_ps: int
    end_ps: int
    exposed_ps: int

    def run(self, complete_ps: int, zero_ps: int) -> BucketRun:
        """Return what became of it since *zero_ps*; its bucket was complete at *complete_ps*."""
        return BucketRun(
            self.bucket,
            self.collective,
            self.nbytes,
            complete_ps - zero_ps,
            self.launched_ps - zero_ps,
            self.start_ps - zero_ps,
            self.end_ps - zero_ps,
            self.exposed_ps,
        )


class Carrier:
    """Holds the buckets that are in flight.

    Args:
        communicator: carries the buckets.
        timeline: is told when each was on its way.

    Attributes:
        landed: what has completed, in that order, since somebody cleared it.
        last_collective: that has completed.
    """

    def __init__(self, communicator: Communicator, timeline: Timeline) -> None:
        self._communicator = communicator
        self._timeline = timeline
        self._in_flight: dict[int, _Flight] = {}
        self._queue_free_ps = 0
        self.landed: list[Landed] = []
        self.last_collective = ""

    def launch(
        self, bucket: int, nbytes: int, start: Callable[[], Work], collective: str = "all_reduce"
    ) -> None:
        """Start a collective on a bucket of so many bytes."""
        launched_ps = self._timeline.now_ps()
        self._in_flight[bucket] = _Flight(start(), nbytes, launched_ps, collective)

    @property
    def busy(self) -> bool:
        """Whether anything is in flight."""
        return bool(self._in_flight)

    @property
    def in_flight(self) -> list[int]:
        """The buckets that are in flight, in the order of launch."""
        return list(self._in_flight)

    def poll(self) -> Iterator[int]:
        """Advance what is in flight; yield what has completed, in the order of launch."""
        self._communicator.poll()
        for bucket, flight in list(self._in_flight.items()):
            if not flight.work.is_completed():
                return
            self._land(bucket, flight, 0)
            yield bucket

    def wait(self, bucket: int) -> None:
        """Return when the collective of the bucket that is in flight has completed."""
        flight, since_ps = self._in_flight[bucket], self._timeline.now_ps()
        flight.work.wait()
        now_ps = self._timeline.now_ps()
        if now_ps > since_ps:
            self._note(f"wait for {flight.collective}", "wait", bucket, flight, since_ps, now_ps)
        self._land(bucket, flight, now_ps - since_ps)

    def _land(self, bucket: int, flight: _Flight, exposed_ps: int) -> None:
        """Take a bucket out of the air."""
        flight.work.wait()
        del self._in_flight[bucket]
        end_ps = flight.work.completed_ps or self._timeline.now_ps()
        start_ps = min(max(flight.launched_ps, self._queue_free_ps), end_ps)
        self._note(flight.collective, "communication", bucket, flight, start_ps, end_ps)
        self._queue_free_ps = end_ps
        self.last_collective = flight.collective
        self.landed.append(
            Landed(bucket, flight.collective, flight.nbytes, flight.launched_ps, start_ps, end_ps, exposed_ps)
        )

    def _note(self, what: str, track: str, bucket: int, flight: _Flight, start_ps: int, end_ps: int) -> None:
        facts = {"bucket": bucket, "collective": flight.collective, "nbytes": flight.nbytes}
        self._timeline.span(track, f"{what} bucket {bucket}", start_ps, end_ps, **facts)

    def settle(self) -> None:
        """Wait for all that is in flight, and forget it, and its errors: one has been raised."""
        for flight in self._in_flight.values():
            with contextlib.suppress(Exception):
                flight.work.wait()
        self._in_flight.clear()
