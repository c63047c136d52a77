"""Call: the fingerprint of what a rank has called, equal on all ranks of the call.

Every call of a communicator has a sequence number and a fingerprint.  Its
messages carry the fingerprint, so messages of calls that differ never meet: a mismatch cannot
corrupt data, it becomes a wait.  When a wait ends in failure, the ranks' reports, laid side by
side, name the culprit (`collectives.execution.blame.judge`).

Calls are in order, and numbered, within their *lane*: all collectives of a communicator are one,
and so are the messages from one rank to another under one tag.  Lanes do not wait for each other.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

NUM_RECENT = 16
"""How many collectives and messages a report names: enough to find where the ranks began to differ."""

Lane: TypeAlias = tuple[int, int, int] | None
"""(source, destination, tag) of messages from one rank to another; None is the lane of the collectives."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a collective, or of a message: equal on all ranks of it, or the program is wrong.

    Attributes:
        sequence: its number in its lane, from 0.
        collective: its name.
        algorithm: what carries it out.
        count: elements of the buffer.
        dtype: their type, as torch names it.
        op: the reduction, if there is one.
        root: the rank at which a rooted collective starts or ends.
        lane: in which it is in order.
    """

    sequence: int
    collective: str
    algorithm: str
    count: int
    dtype: str
    op: str = ""
    root: int | None = None
    lane: Lane = None

    def fingerprint(self) -> int:
        """Return what this call's messages carry: 30 bits, the same in every process."""
        return zlib.crc32(repr(self).encode()) & 0x3FFF_FFFF

    def at(self, places: Sequence[int]) -> Call:
        """Return this call with its ranks numbered as *places* says, by rank, for people to read."""
        root = None if self.root is None else places[self.root]
        lane = None if self.lane is None else (places[self.lane[0]], places[self.lane[1]], self.lane[2])
        return replace(self, root=root, lane=lane)

    def __str__(self) -> str:
        if self.lane is not None:
            source, destination, tag = self.lane
            title = f"message #{self.sequence} from rank {source} to rank {destination}"
            return f"{title} (tag {tag}, {self.count} × {self.dtype})"
        details = [self.algorithm, f"{self.count} × {self.dtype}"]
        if self.op:
            details.append(self.op)
        if self.root is not None:
            details.append(f"root {self.root}")
        return f"{self.collective} #{self.sequence} ({', '.join(details)})"

    @staticmethod
    def from_fields(fields: Mapping[str, Any]) -> Call:
        """Return the call whose ``asdict`` has been to JSON and back."""
        lane = fields["lane"]
        return Call(**{**fields, "lane": None if lane is None else tuple(lane)})


class RecentCalls:
    """The last calls of a rank; many messages do not make it forget its collectives, nor the reverse."""

    def __init__(self) -> None:
        self._collectives: deque[Call] = deque(maxlen=NUM_RECENT)
        self._messages: deque[Call] = deque(maxlen=NUM_RECENT)

    def append(self, call: Call) -> None:
        """Remember *call*."""
        (self._collectives if call.lane is None else self._messages).append(call)

    def __iter__(self) -> Iterator[Call]:
        yield from self._messages
        yield from self._collectives
