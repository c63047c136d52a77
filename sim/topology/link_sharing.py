"""Sharing tables on the links of a topology: which each link has, and which link is its opposite.

The opposite of a link is the one that its routing names or, where it names none, runs between the same two
vertices the other way; of several, the first is opposite to the first.  A link without one is always used
one way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from sim.topology.routing import Routing, Wiring
from sim.topology.sharing_table import WHOLE, Sharing
from sim.units import Int64Array


@dataclass(frozen=True, eq=False)
class LinkSharing:
    """The sharing tables of a topology's links; `of` makes it.

    Attributes:
        tables: that there are.
        table: which of them each link has, int64 of shape (num_links,).
        opposite: the link back over the same cable, -1 where there is none or it does not matter.
    """

    tables: tuple[Sharing, ...]
    table: Int64Array = field(repr=False)
    opposite: Int64Array = field(repr=False)

    @classmethod
    def of(cls, classes: Iterable[tuple[int, Sharing]], routing: Routing) -> LinkSharing | None:
        """Return the tables of links; None where all are whole.

        Args:
            classes: so many links, in order, and the table of these.
            routing: says what they connect.
        """
        classes = list(classes)
        if all(table.is_whole for _, table in classes):
            return None
        counts, tables = zip(*classes, strict=True)
        distinct = tuple(dict.fromkeys(tables))
        table = np.repeat(np.array([distinct.index(one) for one in tables], dtype=np.int64), counts)
        minds = np.array([one.minds_direction for one in distinct])[table]
        opposite = _opposites(routing.wiring())
        matters = (opposite >= 0) & (minds | minds[opposite])
        return cls(distinct, table, np.where(matters, opposite, -1))

    def of_link(self, link: int) -> Sharing:
        """Return the table of *link*."""
        return self.tables[int(self.table[link])]

    def bandwidths(self, bandwidth: Int64Array, flows: Int64Array) -> Int64Array:
        """Return what flows get of each link together.

        Args:
            bandwidth: bytes/s of each link, shape (num_links,).
            flows: how many are on each, shape (num_links,); where there are none, what one would get.
        """
        back = np.where(self.opposite >= 0, flows[self.opposite], 0) > 0
        most = max(max(len(own.one_way), len(own.both_ways)) for own in self.tables)
        several = np.clip(flows, 1, most)  # beyond that the last part goes on
        rates, rate = np.unique(bandwidth, return_inverse=True)
        cases = np.stack([rate, self.table, several, back])
        shape = (len(rates), len(self.tables), most + 1, 2)
        distinct, inverse = np.unique(np.ravel_multi_index(tuple(cases), shape), return_inverse=True)
        gets = [
            self.tables[table].bandwidth(int(rates[own]), num_flows, bool(both_ways))
            for own, table, num_flows, both_ways in np.transpose(np.unravel_index(distinct, shape)).tolist()
        ]
        return np.array(gets, dtype=np.int64)[inverse]

    def with_private(self, private: Sequence[tuple[int, int]]) -> LinkSharing:
        """Return this one with further links, which share as those do with which they go.

        Args:
            private: of each further link, whose it is, and with which link it goes.
        """
        links = np.array([link for _, link in private], dtype=np.int64)
        number = {one: place for place, one in enumerate(private, len(self.table))}
        opposite = [number.get((owner, int(self.opposite[link])), -1) for owner, link in private]
        return LinkSharing(
            self.tables,
            np.append(self.table, self.table[links]),
            np.append(self.opposite, np.array(opposite, dtype=np.int64)),
        )

    def with_whole(self, number: int) -> LinkSharing:
        """Return this one with so many further links, of which flows get all."""
        return LinkSharing(
            (*self.tables, WHOLE),
            np.append(self.table, np.full(number, len(self.tables))),
            np.append(self.opposite, np.full(number, -1)),
        )

    def described(self) -> tuple[Any, ...]:
        """Return what tells networks apart that share differently."""
        return self.tables, self.table.tobytes(), self.opposite.tobytes()


def _opposites(wiring: Wiring) -> Int64Array:
    """Return the opposite of each link, -1 where it has none."""
    if wiring.opposite is not None:
        return wiring.opposite
    tail, head = np.asarray(wiring.tail, np.int64), np.asarray(wiring.head, np.int64)
    if not len(tail):
        return np.zeros(0, dtype=np.int64)
    there, back = tail * len(wiring.names) + head, head * len(wiring.names) + tail

    # The how-manieth between its two vertices each link is, so that the first finds the first.
    order = np.argsort(there, kind="stable")
    ordered = there[order]
    first = np.searchsorted(ordered, ordered)
    turn = np.empty(len(there), dtype=np.int64)
    turn[order] = np.arange(len(there)) - first

    begin, end = np.searchsorted(ordered, back), np.searchsorted(ordered, back, side="right")
    found = begin + turn < end
    return np.where(found, order[np.minimum(begin + turn, len(order) - 1)], -1)
