"""Links: what each can carry, which flows are on it, and at which rates these share it.

Where the topology has sharing tables, what a link carries depends on how many flows are on it, and on
whether any is on its opposite.  So when flows come or go, the flows of the opposite link may get new rates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sim.network.capacity import Capacities
from sim.network.flow import Flow, rate_of
from sim.network.sharing import max_min_rates
from sim.topology import Topology


class Links:
    """The links of a topology, and flows on them.

    Attributes:
        capacities: what each link carries with any number of flows.
        capacity: what each carries with those that it had when `shares` was last called, in units of rates.
        altered: the links that do not carry what the topology says.
        num_flows: how many flows are on links.
        resized: links that carry another rate since somebody emptied this set.
        down: those that carry nothing, each with the reason why there is no other way, if one was sought.
    """

    def __init__(self, topology: Topology) -> None:
        self.capacities = Capacities(topology)
        self.capacity = self.capacities.alone()
        self.altered: set[int] = set()
        self.down: dict[int, str] = {}
        self._on: list[set[Flow]] = [set() for _ in range(topology.num_links)]
        self.num_flows = 0
        self._changed: set[int] = set()
        self.resized: set[int] = set()

    def add(self, bandwidth: int) -> int:
        """Return the number of a further link, of *bandwidth* bytes/s, which is on no route."""
        self.capacities.add(bandwidth)
        self.capacity.append(rate_of(bandwidth))
        self._on.append(set())
        return len(self._on) - 1

    def set_bandwidth(self, link: int, bandwidth: int) -> None:
        """Let *link* carry *bandwidth* bytes/s."""
        self.capacities.bandwidth[link] = bandwidth
        self.capacity[link] = self._carries(link)
        self.resized.add(link)
        self.altered.add(link)
        self._changed.add(link)

    def fail(self, link: int, reason: str) -> None:
        """Let *link* carry nothing; *reason* says why there is no other way, if one was sought."""
        self.down[link] = reason
        self.altered.add(link)

    def are_up(self, links: Iterable[int]) -> bool:
        """Return whether none of *links* has failed."""
        return not self.down or self.down.keys().isdisjoint(links)

    def are_free(self, links: Iterable[int]) -> bool:
        """Return whether no flow is on any of *links*."""
        return not any(self._on[link] for link in links)

    def flows_on(self, link: int) -> set[Flow]:
        """Return the flows on *link*."""
        return self._on[link]

    def put(self, flow: Flow) -> None:
        """Put *flow* on the links of its path."""
        for link in flow.path.links:
            self._on[link].add(flow)
        self._changed.update(flow.path.links)
        self.num_flows += 1

    def take_off(self, flow: Flow) -> None:
        """Take *flow* from its links."""
        for link in flow.path.links:
            self._on[link].remove(flow)
        self._changed.update(flow.path.links)
        self.num_flows -= 1

    def shares(self) -> Iterator[tuple[Flow, int]]:
        """Yield the flows that may have a new rate since this was called last, and their rates.

        They share links, directly or through others, with flows that have come or gone.
        """
        changed, self._changed = self._changed, set()
        if self.capacities.depend_on_flows:
            changed |= self._resize(changed)
        seen: set[int] = set()
        for link in changed:
            if link in seen or not self._on[link]:
                continue
            flow = next(iter(self._on[link]))
            if max([len(self._on[other]) for other in flow.path.links]) == 1:
                seen.update(flow.path.links)
                yield flow, min([self.capacity[other] for other in flow.path.links])
                continue
            flows = self._connected(link, seen)
            rates = max_min_rates([flow.path.links for flow in flows], self.capacity)
            yield from zip(flows, rates, strict=True)

    def _carries(self, link: int) -> int:
        """Return what *link* carries now."""
        opposite = self.capacities.opposite(link)
        return self.capacities.of(link, len(self._on[link]), opposite >= 0 and bool(self._on[opposite]))

    def _resize(self, changed: Iterable[int]) -> set[int]:
        """Let links carry what their flows, or those on the opposite, leave; return which do so anew."""
        touched = {*changed, *(self.capacities.opposite(link) for link in changed)} - {-1}
        resized = set()
        for link in touched:
            carries = self._carries(link)
            if carries != self.capacity[link]:
                self.capacity[link] = carries
                resized.add(link)
        self.resized |= resized
        return resized

    def _connected(self, link: int, seen: set[int]) -> list[Flow]:
        """Return the flows that share links with those on *link*; add their links to *seen*."""
        flows: set[Flow] = set()
        seen.add(link)
        waiting = [link]
        while waiting:
            for flow in self._on[waiting.pop()] - flows:
                flows.add(flow)
                for other in flow.path.links:
                    if other not in seen:
                        seen.add(other)
                        waiting.append(other)
        return list(flows)
