"""Events on links at times that are known beforehand: changes, failures, and traffic beside the messages.

Capacities are constant from one event to the next, so rates, and what is left of each flow, stay exact.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from sim.errors import TopologyError
from sim.network.flow import Flow, Path, amount
from sim.network.network import Network
from sim.topology.routing import Routing


@dataclass(frozen=True)
class OtherTraffic:
    """One flow from *start_ps* on that shares the links from *source* to *destination*.

    Attributes:
        source: where it comes from.
        destination: where it goes.
        bandwidth: bytes/s that it takes at most; None: as many as there are.
        nbytes: ends it; None: it is endless.
        start_ps: when it takes to its links.
        stop_ps: when it leaves them at the latest; None: it need not.
    """

    source: int
    destination: int
    bandwidth: int | None = None
    nbytes: int | None = None
    start_ps: int = 0
    stop_ps: int | None = None


class LinkEvents:
    """What happens to the links of a network; of one instant, in the order in which it is told.

    Args:
        network: nothing has been sent on it yet.
        without: returns the routing that avoids links, or raises `TopologyError`.
    """

    def __init__(self, network: Network, without: Callable[[Collection[int]], Routing]) -> None:
        self._network = network
        self._without = without
        self._avoided: frozenset[int] = frozenset()
        self._streams: list[_BackgroundFlow] = []

    def change(self, at_ps: int, link: int, bandwidth: int) -> None:
        """Let *link* carry *bandwidth* bytes/s from *at_ps* on."""
        self._at(at_ps, self._network.set_bandwidth, link, bandwidth)

    def fail(self, at_ps: int, link: int, reroute: bool) -> None:
        """Let *link* carry nothing from *at_ps* on; with *reroute*, messages find another way."""
        self._at(at_ps, self._fail, link, reroute)

    def add(self, other: OtherTraffic) -> None:
        """Let there be *other* traffic."""
        stream = _BackgroundFlow(self._network, other, -1 - len(self._streams))
        self._streams.append(stream)
        self._at(other.start_ps, stream.begin)
        if other.stop_ps is not None:
            self._at(other.stop_ps, stream.stop)

    def _at(self, time_ps: int, action: Callable[..., None], *arguments: int) -> None:
        event = self._network.env.timeout(time_ps - int(self._network.env.now))
        event.callbacks.append(lambda _: action(*arguments))

    def _fail(self, link: int, reroute: bool) -> None:
        """Let *link* fail; other traffic takes the other way, too, and does not wait for its latency."""
        routing, reason = None, ""
        if reroute:
            try:
                routing = self._without(self._avoided | {link})
            except TopologyError as error:
                reason = str(error)
            else:
                self._avoided |= {link}

        moving = [stream for stream in self._streams if stream.crosses(link)]
        for stream in moving:
            stream.stop()
        self._network.fail(link, routing, reason)
        for stream in moving:
            stream.begin()


class _BackgroundFlow:
    """Other traffic on its links; a `sim.network.launch.Sender`."""

    def __init__(self, network: Network, traffic: OtherTraffic, order: int) -> None:
        self._network = network
        self._ends = traffic.source, traffic.destination
        self._own_links: tuple[int, ...] = ()
        if traffic.bandwidth is not None:
            self._own_links = (network.links.add(traffic.bandwidth),)
            if network.recorder is not None:
                network.recorder.add_link(traffic.bandwidth)
        endless, rest = traffic.nbytes is None, amount(traffic.nbytes or 0)
        self._flow = Flow(Path(*self._ends, (), 0), rest, self, 0, order, endless)
        self._is_there = False

    def begin(self) -> None:
        """Take to the links of the way that there is now; without one, it ends."""
        links = self._network.topology.route(*self._ends) + self._own_links
        if self._network.links.are_up(links):
            self._flow.path = Path(*self._ends, links, 0)
            self._network.add(self._flow)
            self._is_there = True

    def stop(self) -> None:
        """Leave the links."""
        if self._is_there:
            self._network.remove(self._flow)
            self._is_there = False

    def crosses(self, link: int) -> bool:
        """Return whether it is on *link* and does not end now."""
        there = self._is_there and link in self._flow.path.links
        return there and self._flow.end_ps != self._network.env.now

    def arrived(self, numbers: list[int]) -> None:
        """Note that it has ended by itself."""
        self._is_there = False

    def describe(self, number: int) -> None:
        """Return nothing: other traffic is no message, and is not lost."""
