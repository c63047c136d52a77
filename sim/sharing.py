"""How flows share links: max-min fairness, by progressive filling, in exact arithmetic.

All rates rise together until some link is full; the flows on it keep the rate they have reached,
the others rise on.  No flow can then go faster except at the cost of one that is no faster than
itself, and there is only one such allocation.  Rates are ints where they come out in whole bytes
per second and fractions elsewhere, so they depend on no order of additions, and any two ways of
computing them agree with ``==``.

Source: Bertsekas and Gallager, "Data Networks", 2nd edition, section 6.5.2.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from fractions import Fraction
from heapq import heapify, heappop, heappush
from typing import TypeAlias

Rate: TypeAlias = int | Fraction
"""Bytes per second, exact."""


def max_min_rates(routes: Sequence[tuple[int, ...]], capacity: Sequence[int]) -> list[Rate]:
    """Return the max-min fair rate of each flow, in bytes per second.

    Args:
        routes: for each flow the links that it crosses, at least one, none twice.
        capacity: bytes per second of each link.
    """
    crossing: defaultdict[int, list[int]] = defaultdict(list)
    for flow, route in enumerate(routes):
        for link in route:
            crossing[link].append(flow)
    rates: list[Rate] = [0] * len(routes)
    free: dict[int, Rate] = {link: capacity[link] for link in crossing}
    rising = {link: len(flows) for link, flows in crossing.items()}

    # The share of a link never falls while others fill up, so a share in the queue may be out of
    # date only by being too low: it is looked at again when its turn comes.
    queue = [(_divide(free[link], rising[link]), link) for link in crossing]
    heapify(queue)
    while queue:
        level = queue[0][0]
        full = []
        while queue and queue[0][0] == level:
            _, link = heappop(queue)
            if rising[link]:
                share = _divide(free[link], rising[link])
                if share == level:
                    full.append(link)
                else:
                    heappush(queue, (share, link))
        settled: defaultdict[int, int] = defaultdict(int)
        for link in full:
            for flow in crossing[link]:
                if not rates[flow]:
                    rates[flow] = level
                    for other in routes[flow]:
                        settled[other] += 1
        for link, count in settled.items():
            free[link] -= level * count
            rising[link] -= count
    return rates


def _divide(free: Rate, count: int) -> Rate:
    """Return ``free / count``, as an int where it is one."""
    share = Fraction(free, count)
    return share.numerator if share.denominator == 1 else share
