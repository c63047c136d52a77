"""Links that calls of groups use: which ones the messages of which ranks cross, and which call holds which.

A message holds its links until it has arrived, and both its ends wait for that before they are through.  So
a link is free again, of a call by itself, when of every message over it one of the two ends is through.
Where the directions of a cable mind each other (`sim.topology.sharing_table`), both are counted.

A call holds the links of a rank from when that rank begins it, without an end in sight; once it is known when
all are through, until each is free again.  So two calls can meet on a link only if one begins while the
other holds it.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import count

import numpy as np

from collectives.errors import NotExactError
from collectives.program import Algorithm, Send
from collectives.timing.rows.pattern import patterned_rows
from collectives.timing.rows.repeated_rows import repeated_rows
from collectives.virtual.group_calls.family import Family
from sim.network.coflow import Coflow
from sim.topology import Topology
from sim.units import Int64Array

_REMEMBERED = 64


class Footprint:
    """The links that the calls of *algorithm* by the groups of *family* use; `of` makes it.

    Attributes:
        links: all of them, in order.
        num_messages: of one call by one group.
        groups_meet: whether a link is used by more than one group.
    """

    def __init__(self, topology: Topology, family: Family, algorithm: Algorithm) -> None:
        self._family = family
        (channel, *ends), self.num_messages = _connections_of(algorithm, family.group_size)
        first = np.arange(family.num_groups)[:, None] * family.group_size
        source, destination = ((first + side).reshape(-1) for side in ends)
        channel = np.tile(channel, family.num_groups)
        reach = np.zeros((0, 1), dtype=np.int64)
        if len(source):
            members = family.members[source], family.members[destination]
            reach = Coflow.between(topology, *members, channel).reach

        crosses = reach < topology.num_links
        message = np.repeat(np.arange(len(source)), crosses.sum(axis=1))
        self.links, link = np.unique(reach[crosses], return_inverse=True)

        # Messages in the order of their links, to find the last on each.
        order = np.argsort(link, kind="stable")
        self._source, self._destination = source[message][order], destination[message][order]
        self._first_on_link = np.searchsorted(link[order], np.arange(len(self.links)))

        # Links in the order of the ranks that use them.
        used = np.unique(
            np.concatenate([source[message], destination[message]]) * len(self.links)
            + np.concatenate([link, link])
        )
        user, self._link_of_user = np.divmod(used, max(1, len(self.links)))
        self._first_of_user = np.searchsorted(user, np.arange(len(family) + 1))
        used_by = np.unique(user // family.group_size * len(self.links) + self._link_of_user)
        self.groups_meet = len(used_by) > len(self.links)
        self._known: OrderedDict[bytes, Int64Array] = OrderedDict()

    def positions_of(self, places: Int64Array) -> Int64Array:
        """Return which of `links` the messages of the ranks at *places* cross."""
        if places is self._family.all_places:
            return np.arange(len(self.links))
        key = places.tobytes()
        if key not in self._known:
            first, last = self._first_of_user[places], self._first_of_user[places + 1]
            parts = [self._link_of_user[a:b] for a, b in zip(first.tolist(), last.tolist(), strict=True)]
            self._known[key] = np.unique(np.concatenate(parts)) if parts else np.zeros(0, dtype=np.int64)
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        self._known.move_to_end(key)
        return self._known[key]

    def free_from(self, ends: Int64Array) -> Int64Array:
        """Return from when on each of `links` is free, of ranks that are through at *ends*, by place."""
        if not len(self.links):
            return np.zeros(0, dtype=np.int64)
        over = np.minimum(ends[self._source], ends[self._destination])
        free: Int64Array = np.maximum.reduceat(over, self._first_on_link)
        return free


def _connections_of(algorithm: Algorithm, num_ranks: int) -> tuple[Int64Array, int]:
    """Return channel, source and destination of connections, each once, and how many messages there are."""
    found: list[Int64Array] = []
    num_messages, last = 0, None
    try:
        known = repeated_rows(algorithm, num_ranks)
        if known is None:
            patterns = ((pattern, 1) for _, pattern in patterned_rows(algorithm, num_ranks))
        else:
            patterns = ((kind.pattern, kind.count) for kind in known)
        for pattern, count in patterns:
            num_messages += len(pattern.source) * count
            if pattern is not last:
                from_ranks = pattern.channel * num_ranks + pattern.source
                found.append(np.unique(from_ranks * num_ranks + pattern.destination))
                last = pattern
    except NotExactError:
        sent = [
            (operation.channel * num_ranks + rank) * num_ranks + operation.peer
            for rank in range(num_ranks)
            for step in algorithm.steps(rank, num_ranks)
            for operation in step
            if isinstance(operation, Send)
        ]
        found, num_messages = [np.array(sent, dtype=np.int64)], len(sent)
    connections = np.unique(np.concatenate(found)) if found else np.zeros(0, dtype=np.int64)
    sending, destination = np.divmod(connections, num_ranks)
    return np.stack([*np.divmod(sending, num_ranks), destination]), num_messages


OPEN = np.iinfo(np.int64).max
"""Until when a link is held, where that is not known yet."""


class LinksInUse:
    """Holders of the links of a network; each is a number."""

    def __init__(self, num_links: int) -> None:
        self._until_ps = np.zeros(num_links, dtype=np.int64)
        self._holder = np.full(num_links, -1, dtype=np.int64)
        self._numbers = count()

    def new_holder(self) -> int:
        """Return a number that no other holder has."""
        return next(self._numbers)

    def others_on(self, links: Int64Array, holder: int, now_ps: int) -> list[int]:
        """Return who but *holder* holds one of *links* beyond now."""
        held = self._until_ps[links] > now_ps
        if not held.any():
            return []
        holders: list[int] = np.unique(self._holder[links[held]]).tolist()
        return [other for other in holders if other != holder]

    def hold(self, links: Int64Array, holder: int, until_ps: Int64Array | int = OPEN) -> None:
        """Let *holder* hold *links*, each until the time given."""
        self._until_ps[links] = until_ps
        self._holder[links] = holder

    def release(self, links: Int64Array, holder: int) -> None:
        """Let those of *links* go that *holder* holds."""
        self._until_ps[links[self._holder[links] == holder]] = 0
