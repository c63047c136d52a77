"""Max-min fair rates of flows that share links, by progressive filling.

All rates rise together until some link is full; the flows on it keep the rate they have reached,
the others rise on.  No flow can then go faster except at the cost of one that is no faster than
itself, and there is only one such allocation.

Everything is an int in whatever unit the caller gives capacities in, and a share that does not
come out is rounded down, so the result depends on no order of flows.  A caller who wants
fractions chooses a finer unit (`sim.network.network` does); `fractions.Fraction` gave the same times three
times slower, with denominators that grow without bound as a run goes on.

Source: Bertsekas and Gallager, "Data Networks", 2nd edition, section 6.5.2.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush


def max_min_rates(
    routes: Sequence[tuple[int, ...]],
    capacity: Sequence[int] | Mapping[int, int],
    flows: Sequence[int] | None = None,
) -> list[int]:
    """Return the max-min fair rate of a flow on each of *routes*, in the unit of *capacity*.

    Each flow has a link on which no other is faster and less than one unit per flow is free.

    Args:
        routes: for each flow the links that it crosses, at least one, none twice.
        capacity: what each link carries, at least 1.
        flows: how many there are on each of *routes*, at least 1; None: one.
    """
    number = [1] * len(routes) if flows is None else flows
    crossing: defaultdict[int, list[int]] = defaultdict(list)
    for flow, route in enumerate(routes):
        for link in route:
            crossing[link].append(flow)
    rates = [-1] * len(routes)
    free = {link: capacity[link] for link in crossing}
    rising = {
        link: len(there) if flows is None else sum([flows[flow] for flow in there])
        for link, there in crossing.items()
    }

    # The share of a link never falls while others fill up, so a share in the queue may be out of
    # date only by being too low: it is looked at again when its turn comes.
    queue = [(free[link] // rising[link], link) for link in crossing]
    heapify(queue)
    while queue:
        level = queue[0][0]
        full = []
        while queue and queue[0][0] == level:
            _, link = heappop(queue)
            if rising[link]:
                share = free[link] // rising[link]
                if share == level:
                    full.append(link)
                else:
                    heappush(queue, (share, link))
        settled: defaultdict[int, int] = defaultdict(int)
        for link in full:
            for flow in crossing[link]:
                if rates[flow] < 0:
                    rates[flow] = level
                    for other in routes[flow]:
                        settled[other] += number[flow]
        for link, count in settled.items():
            free[link] -= level * count
            rising[link] -= count
    return rates
