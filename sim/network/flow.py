"""A message on its way through a network, and whom it tells that it has arrived."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import simpy

from sim.network.coflow.active import Arrived

About: TypeAlias = Callable[[], tuple[str, str]]
"""Returns of what collective a message is, and which it is, such as ``step 2: rank 3 sends …``."""


class Path:
    """The way between two ranks, its narrowest capacity, and what has been sent on it."""

    __slots__ = ("bytes_sent", "capacity", "latency_ps", "links")

    def __init__(self, links: tuple[int, ...], capacity: int, latency_ps: int) -> None:
        self.links = links
        self.capacity = capacity
        self.latency_ps = latency_ps
        self.bytes_sent = 0


class Flow:
    """A message on its links.

    ``rest`` is what was left at ``since_ps``, when it got its rate, in units of rate times
    picoseconds.
    """

    __slots__ = ("done", "end_ps", "number", "path", "rate", "rest", "since_ps")

    def __init__(self, number: int, path: Path, rest: int, done: Arrival | Member) -> None:
        self.number = number
        self.path = path
        self.rest = rest
        self.rate = 0
        self.since_ps = 0
        self.end_ps = -1
        self.done = done


class Arrival(simpy.Event):
    """Fires when the last byte of a message has arrived; *about* says what message that is."""

    def __init__(self, env: simpy.Environment, about: About | None) -> None:
        super().__init__(env)
        self.about = about


class Member:
    """What a flow tells its end that was launched with others; stands where others have an event."""

    __slots__ = ("arrived", "ended", "number")

    def __init__(self, arrived: Arrived, number: int, ended: dict[Arrived, list[int]]) -> None:
        self.arrived = arrived
        self.number = number
        self.ended = ended

    def succeed(self) -> None:
        """Note that the message has arrived; the network tells of all that do at an instant together."""
        self.ended.setdefault(self.arrived, []).append(self.number)
