"""Routing: the links of a route, what they connect, and where a network is narrow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, cast

import numpy as np

from sim.units import Int64Array

Ranks: TypeAlias = int | Int64Array
"""One rank (or link), or an array of them; arguments of one call are of one kind."""


class Routing(Protocol):
    """How the links of a network are numbered and used.

    An implementer decides the numbering and the way between two different ranks.  Its ``repr``
    must tell apart routings that behave differently, as it goes into the topology's digest.
    """

    @property
    def by_channel(self) -> bool:
        """Whether connections of two ranks may take different ways."""

    def walk(self, source: Ranks, destination: Ranks, channel: Ranks = 0) -> Iterator[Ranks]:
        """Yield the links from *source* to *destination*, by their connection *channel*, in order.

        Only a hash of connections makes a difference between channels.  With arrays of m pairs it yields
        arrays of shape (m,), and -1 for a pair that crosses no link at this turn; such turns may lie
        before and between its links.
        """

    def link_name(self, link: int) -> str:
        """Return a name of *link* for people."""

    def wiring(self) -> Wiring:
        """Return which vertices each link connects.

        A route is a path on this graph, and no message can leave it.
        """

    def cuts(self) -> list[Cut]:
        """Return cuts whose links every message between two groups must use, narrow ones first.

        No algorithm can beat what these links carry; see `collectives.timing.floor`.
        """


@dataclass(frozen=True, slots=True)
class Cut:
    """A division of the ranks' places into groups, and the links that cross a group's boundary.

    A message from a place in one group to one outside crosses one of the links out of its group,
    and, where it ends in a group, one of the links into that.

    Attributes:
        name: what a group is, for example ``rank`` or ``node``.
        group_of: the group 0 to g-1 of each place, shape (num_ranks,); -1: in none.
        links_out: links on which messages leave each group, shape (g, k), padded with -1.
        links_in: links on which messages enter each group, shape (g, k), padded with -1.
    """

    name: str
    group_of: Int64Array
    links_out: Int64Array
    links_in: Int64Array


def _no_joins() -> Int64Array:
    return np.empty((0, 2), dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Wiring:
    """The graph that the links make.

    Attributes:
        names: of the vertices, for people: first the ranks' places, then switches and the like.
        tail: the vertex where each link begins, int64 of shape (num_links,).
        head: the vertex where each link ends.
        joins: pairs (from, to) of vertices between which messages pass at no cost, as between a rank
            and a network card that it shares with others; int64 of shape (j, 2).
        opposite: the link back of each, -1 where there is none; None: the links between the same two
            vertices, the first back to the first.
    """

    names: tuple[str, ...]
    tail: Int64Array
    head: Int64Array
    joins: Int64Array = field(default_factory=_no_joins)
    opposite: Int64Array | None = None


def one_pair(routing: Routing, source: int, destination: int, channel: int = 0) -> Iterator[int]:
    """Yield what *routing* walks over arrays of one pair."""
    for links in routing.walk(np.array([source]), np.array([destination]), np.array([channel])):
        yield int(cast(Int64Array, links)[0])


def rank_names(num_ranks: int) -> list[str]:
    """Return the names of the ranks' places, such as ``rank 3``."""
    return [f"rank {rank}" for rank in range(num_ranks)]


def up_or_down(link: int, num_ranks: int) -> str:
    """Return for example ``rank 3 up``, where up of rank r is link ``r`` and down ``num_ranks + r``."""
    return f"rank {link % num_ranks} {'down' if link >= num_ranks else 'up'}"


def cut_around_ranks(num_ranks: int) -> Cut:
    """Return the cut around each rank, which sends over link r and receives over link ``num_ranks + r``."""
    ranks = np.arange(num_ranks)
    return Cut("rank", ranks, ranks[:, None], num_ranks + ranks[:, None])


def choose(condition: Any, yes: Ranks, no: Ranks) -> Ranks:
    """Return *yes* where *condition* holds and *no* elsewhere, for one value or for arrays."""
    if isinstance(condition, np.ndarray):
        chosen: Int64Array = np.where(condition, yes, no)
        return chosen
    return yes if condition else no
