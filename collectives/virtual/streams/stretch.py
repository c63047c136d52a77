"""Stretch of a score: what a host issues on end, until it waits, marks a place or has come to its end.

Hosts of one pace take the same time for it, whenever they begin.  So it is gone through once for all players
of a score, and queues of their streams have shares in it, each with the time at which its own host began.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

from collectives.virtual.streams.score import (
    DEFAULT_STREAM,
    Call,
    HostWait,
    HostWork,
    Item,
    Launch,
    Mark,
    Pace,
    Score,
)

MOST_ITEMS = 256
"""Items of a stretch, so that streams take what has just been made."""

IssuedItem: TypeAlias = tuple[int, int, Item]
"""How long after its begin the host has issued an item for a stream, its position, and itself."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """What a host issues on end.

    Attributes:
        end: position of what follows.
        duration_ps: that it takes the host.
        of_streams: what each stream gets, in order.
    """

    end: int
    duration_ps: int
    of_streams: Mapping[int, Sequence[IssuedItem]]

    @classmethod
    def at(cls, position: int, score: Score, pace: Pace) -> Stretch:
        """Return the stretch that begins at *position* of *score*, at which no host waits."""
        of_streams: defaultdict[int, list[IssuedItem]] = defaultdict(list)
        launch_ps = pace.scaled(pace.launch_ps)
        host_ps = 0
        first = position - score.dropped
        for item in islice(score.items, first, first + MOST_ITEMS):
            if isinstance(item, HostWait):
                break
            host_ps += host_ps_of(item, launch_ps, pace)
            if isinstance(item, Mark):
                of_streams[DEFAULT_STREAM].append((host_ps, position, item))
            elif not isinstance(item, HostWork):
                of_streams[item.stream].append((host_ps, position, item))
            position += 1
            if isinstance(item, Mark):
                break
        return cls(position, host_ps, of_streams)


def host_ps_of(item: Item, launch_ps: int, pace: Pace) -> int:
    """Return how long the host is busy with *item*, of which a launch takes *launch_ps*."""
    if isinstance(item, (Launch, Call)):
        return 0 if item.replayed else launch_ps
    return pace.scaled(item.duration_ps) if isinstance(item, HostWork) else 0
