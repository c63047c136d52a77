"""Symmetry of a network: ways to renumber its ranks that change nothing.

Ranks are counted in mixed radix, ``r = (node, pair, lane)`` for example, and a way is to turn one digit round
by one in all ranks at once.  Those that carry every route to a route over links alike are kept.  They
commute, and no combination but the identity leaves a rank where it is; so what is decided for one rank of an
orbit is decided for all, and loads links of an orbit equally.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from collectives.synthesis.routes import Routes
from sim.units import Int64Array


@dataclass(frozen=True, eq=False)
class Symmetry:
    """A group of renumberings, the identity first.

    Attributes:
        ranks: where each element takes each rank, int64 of shape (order, p).
        links: where it takes each link, shape (order, links + 1); the last stands for no link.
    """

    ranks: Int64Array
    links: Int64Array

    @property
    def order(self) -> int:
        """Number of renumberings."""
        return len(self.ranks)

    @property
    def representatives(self) -> list[int]:
        """The first rank of each orbit."""
        first: list[int] = np.flatnonzero(self.ranks.min(axis=0) == np.arange(self.ranks.shape[1])).tolist()
        return first

    @cached_property
    def orbit_of_link(self) -> Int64Array:
        """The orbit, numbered from 0, of each link, and of no link."""
        orbits: Int64Array = np.unique(self.links.min(axis=0), return_inverse=True)[1]
        return orbits

    @cached_property
    def orbit_sizes(self) -> Int64Array:
        """The number of links of each orbit."""
        return np.bincount(self.orbit_of_link)


def no_symmetry(routes: Routes) -> Symmetry:
    """Return the identity alone."""
    return Symmetry(np.arange(routes.num_ranks)[None], np.arange(len(routes.capacity) + 1)[None])


def symmetry_of(routes: Routes) -> Symmetry:
    """Return the largest group of turned digits that leaves *routes* as they are."""
    num_ranks = routes.num_ranks
    divisors = [number for number in range(1, num_ranks + 1) if num_ranks % number == 0]
    turns: dict[tuple[int, int], tuple[Int64Array, Int64Array]] = {}
    for unit in divisors:
        for block in divisors:
            if block > unit and block % unit == 0:
                ranks = np.arange(num_ranks)
                turned = ranks // block * block + (ranks % block + unit) % block
                links = _links_under(routes, turned)
                if links is not None:
                    turns[unit, block] = turned, links

    best: dict[int, tuple[int, list[tuple[int, int]]]] = {1: (1, [])}
    for block in divisors[1:]:
        options = []
        for unit in divisors:
            if unit < block and block % unit == 0:
                order, chain = best[unit]
                digit = [(unit, block)] if (unit, block) in turns else []
                options.append((order * (block // unit if digit else 1), chain + digit))
        best[block] = max(options, key=lambda option: option[0])

    group = no_symmetry(routes)
    for unit, block in best[num_ranks][1]:
        turned, moved = turns[unit, block]
        of_ranks, of_links = [group.ranks], [group.links]
        for _ in range(block // unit - 1):
            of_ranks.append(turned[of_ranks[-1]])
            of_links.append(moved[of_links[-1]])
        group = Symmetry(np.concatenate(of_ranks), np.concatenate(of_links))
    return group


def _links_under(routes: Routes, ranks: Int64Array) -> Int64Array | None:
    """Return where links go when ranks go to *ranks*; None if routes do not go to routes over links alike."""
    before, after = routes.links, routes.links[ranks][:, ranks]
    moved = np.arange(len(routes.capacity) + 1)
    moved[before] = after
    if not np.array_equal(moved[before], after) or len(np.unique(moved)) < len(moved):
        return None
    links = moved[:-1]
    if moved[-1] != len(links):
        return None
    alike = np.array_equal(routes.capacity[links], routes.capacity) and np.array_equal(
        routes.link_latency[links], routes.link_latency
    )
    return moved if alike else None
