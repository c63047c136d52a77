"""Flights under way: messages that took to their links together and have them to themselves.

As long as nobody else comes to their links, all their ends are known from the start.  When somebody does,
the batch dissolves: what is left of each message then follows from the rates that it had so far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from sim.flight import Flight
from sim.fluid import amount, end_ps
from sim.sharing import max_min_rates
from sim.units import Int64Array

Arrived: TypeAlias = Callable[[Int64Array | None], None]
"""Called with the numbers of messages that have arrived, or None for all that were sent."""


@dataclass(eq=False)
class Batch:
    """Messages of *flight* that occupy their links from *start_ps* on.

    Attributes:
        flight: the messages.
        nbytes: of each, shape (m,).
        numbers: what each is called by who sent them, shape (m,); None: as in *flight*.
        arrived: is told which have arrived.
        start_ps: when they took to their links.
        ends_ps: when each is through, if nobody comes to its links, shape (m,).
    """

    flight: Flight
    nbytes: int | Int64Array
    numbers: Int64Array | None
    arrived: Arrived
    start_ps: int = 0
    ends_ps: Int64Array | None = None

    def take_off(self, now_ps: int) -> bool:
        """Work out all ends from *now_ps* on; return whether there is symmetry enough for that."""
        durations = self.flight.durations_ps(self.nbytes)
        if durations is None:
            return False
        self.start_ps = now_ps
        self.ends_ps = durations + now_ps
        return True

    @property
    def last_end_ps(self) -> int:
        """When the last message is through, if nobody comes to their links."""
        assert self.ends_ps is not None
        return int(self.ends_ps.max())

    def end_times(self) -> list[int]:
        """Return the times at which messages end, in order."""
        assert self.ends_ps is not None
        first = int(self.ends_ps[0])
        if (self.ends_ps == first).all():
            return [first]
        return [int(end) for end in np.unique(self.ends_ps)]

    def ended_at(self, now_ps: int) -> Int64Array | None:
        """Return the numbers of the messages that end at *now_ps*, or None if all do."""
        assert self.ends_ps is not None
        there = self.ends_ps == now_ps
        if there.all() and self.numbers is None:
            return None
        return np.flatnonzero(there) if self.numbers is None else self.numbers[there]

    def number(self, message: int) -> int:
        """Return what *message* of the flight is called by who sent it."""
        return message if self.numbers is None else int(self.numbers[message])

    def left_at(self, now_ps: int, capacity: list[int]) -> Iterator[tuple[int, int, int, int]]:
        """Yield (message, rate, rest, since when) for each that is not through at *now_ps*.

        Rates and rests are in the units of `sim.fluid`, the rest being that at the time of the last
        change of rates before.
        """
        none = len(capacity)
        routes = {
            message: tuple(link for link in links if link != none)
            for message, links in enumerate(self.flight.links.tolist())
        }
        sizes = np.broadcast_to(np.asarray(self.nbytes), (len(self.flight),)).tolist()
        rest = {message: amount(nbytes) for message, nbytes in enumerate(sizes)}
        since = self.start_ps
        while rest:
            rates = dict(
                zip(rest, max_min_rates([routes[message] for message in rest], capacity), strict=True)
            )
            ends = {message: end_ps(since, left, rates[message]) for message, left in rest.items()}
            first = min(ends.values())
            if first > now_ps:
                break
            rest = {
                message: left - rates[message] * (first - since)
                for message, left in rest.items()
                if ends[message] > first
            }
            since = first
        for message, left in rest.items():
            yield message, rates[message], left, since
