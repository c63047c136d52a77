"""Bundles: flows over the same links, on links that stay as they are, without an object or an event for each.

Flows of a bundle have one rate, as max-min fairness tells flows over the same links not apart.  So a bundle
counts what it has carried of each, and a flow is through once that has grown by the flow's bytes since it
began: whoever comes or goes changes one rate and one end, however many flows there are.  Times are those of
`sim.network.network`, with ``==``: rates, remainders and ends are the same ints, reckoned once for all.

Source: Parekh and Gallager, "A generalized processor sharing approach to flow control", IEEE/ACM Transactions
on Networking 1, 1993, for the virtual time in which a flow's end stays where it is.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heappop, heappush
from itertools import count
from typing import Any, Generic, TypeVar

from sim.network.flow import amount, end_ps, rate_of
from sim.network.sharing import max_min_rates
from sim.topology import Topology

M = TypeVar("M", bound=Hashable)

_END, _BEGIN = 0, 1
"""What happens first at one instant: what ends makes room for what begins."""


class Bundle:
    """Flows over *links*.

    Attributes:
        narrowest: what the slowest of its links carries, in units of rates.
        ends: of each flow, what the bundle will have carried when it is through, its order, and its message.
        carried: of each flow since the bundle began, until *since_ps*, in units of rate times picoseconds.
        rate: of each flow from then on, in units of 2**-256 bytes/s.
        since_ps: when it got that rate.
        end_ps: when the next flow is through.
    """

    __slots__ = ("carried", "end_ps", "ends", "links", "narrowest", "rate", "since_ps")

    def __init__(self, links: tuple[int, ...], narrowest: int) -> None:
        self.links = links
        self.narrowest = narrowest
        self.ends: list[tuple[int, int, Any]] = []
        self.carried = self.rate = self.since_ps = 0
        self.end_ps = -1


class Bundles(Generic[M]):
    """Flows on the links of *topology*, which has no sharing tables; each flow stands for a message."""

    def __init__(self, topology: Topology) -> None:
        self._capacity = [rate_of(bandwidth) for bandwidth in topology.link_bandwidth.tolist()]
        self._bundles: dict[tuple[int, ...], Bundle] = {}
        self._on: dict[int, dict[Bundle, None]] = {}
        self._events: list[tuple[int, int, int, Bundle, tuple[int, M] | None]] = []
        self._order = count()

    def over(self, links: tuple[int, ...]) -> Bundle:
        """Return the bundle over *links*."""
        found = self._bundles.get(links)
        if found is None:
            narrowest = min([self._capacity[link] for link in links])
            found = self._bundles[links] = Bundle(links, narrowest)
        return found

    def begin(self, bundle: Bundle, start_ps: int, nbytes: int, message: M) -> None:
        """Let *message* take to the links of *bundle* at *start_ps*, which is not over yet."""
        heappush(self._events, (start_ps, _BEGIN, next(self._order), bundle, (nbytes, message)))

    def next_ends(self) -> tuple[int, list[M]] | None:
        """Go on to the next instant at which something happens.

        Returns:
            Its time, and the messages that are through then; None: nothing is left to happen.
        """
        events = self._events
        through: list[M] = []
        changed: set[Bundle] = set()
        while events and not changed:
            now = events[0][0]
            while events and events[0][0] == now:
                _, _, order, bundle, begins = heappop(events)
                if begins is not None:
                    self._begin(bundle, now, order, *begins)
                    changed.add(bundle)
                elif bundle.end_ps == now:  # else its flows have got another rate since
                    self._end(bundle, now, through)
                    changed.add(bundle)
        if not changed:
            return None
        self._share({link for bundle in changed for link in bundle.links}, now)
        return now, through

    def _begin(self, bundle: Bundle, now: int, order: int, nbytes: int, message: M) -> None:
        """Put the flow of *message* into *bundle*."""
        if not bundle.ends:
            bundle.since_ps, bundle.rate = now, 0
            for link in bundle.links:
                self._on.setdefault(link, {})[bundle] = None
        carried = bundle.carried + bundle.rate * (now - bundle.since_ps)
        heappush(bundle.ends, (carried + amount(nbytes), order, message))
        bundle.end_ps = -1

    def _end(self, bundle: Bundle, now: int, through: list[M]) -> None:
        """Take the flows from *bundle* that are through now."""
        ends, since_ps, rate, carried = bundle.ends, bundle.since_ps, bundle.rate, bundle.carried
        while ends and end_ps(since_ps, ends[0][0] - carried, rate) == now:
            through.append(heappop(ends)[2])
        bundle.end_ps = -1
        if not ends:
            for link in bundle.links:
                del self._on[link][bundle]

    def _share(self, changed: set[int], now: int) -> None:
        """Give new rates to bundles that share links, directly or through others, with *changed* ones."""
        seen: set[int] = set()
        on, capacity = self._on, self._capacity
        for link in changed:
            if link in seen or not on[link]:
                continue
            first = next(iter(on[link]))
            if self._is_alone(first):
                seen.update(first.links)
                self._set_rate(first, first.narrowest // len(first.ends), now)
                continue
            linked = self._linked(link, seen)
            routes, flows = [bundle.links for bundle in linked], [len(bundle.ends) for bundle in linked]
            for bundle, rate in zip(linked, max_min_rates(routes, capacity, flows), strict=True):
                self._set_rate(bundle, rate, now)

    def _is_alone(self, bundle: Bundle) -> bool:
        """Return whether no other bundle is on the links of *bundle*."""
        return max([len(self._on[link]) for link in bundle.links]) == 1

    def _linked(self, link: int, seen: set[int]) -> list[Bundle]:
        """Return the bundles that share links with those on *link*; add their links to *seen*."""
        linked: dict[Bundle, None] = {}
        seen.add(link)
        waiting = [link]
        while waiting:
            for bundle in self._on[waiting.pop()]:
                if bundle not in linked:
                    linked[bundle] = None
                    for other in bundle.links:
                        if other not in seen:
                            seen.add(other)
                            waiting.append(other)
        return list(linked)

    def _set_rate(self, bundle: Bundle, rate: int, now: int) -> None:
        """Let *bundle* go on at *rate*, and note when its next flow is through."""
        if rate == bundle.rate and bundle.end_ps >= 0:
            return
        if rate != bundle.rate:
            bundle.carried += bundle.rate * (now - bundle.since_ps)
            bundle.rate, bundle.since_ps = rate, now
        end = end_ps(bundle.since_ps, bundle.ends[0][0] - bundle.carried, rate)
        if end != bundle.end_ps:
            bundle.end_ps = end
            heappush(self._events, (end, _END, next(self._order), bundle, None))
