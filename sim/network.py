"""Messages in virtual time: they wait for the latency of their way, then share its links.

A message is a *flow*: it first waits for the sum of the latencies of its links, then occupies all
of them at once until its last byte is through, at the rate that max-min fairness gives it among
the flows that are there (`sim.sharing`).  Alone on its way it takes exactly
``latency + transfer_ps(nbytes, smallest bandwidth)``.

Whatever begins and ends at one instant is collected and settled once, after everything else that
happens at that instant, and only the flows that share links with a change, directly or through
others, get new rates.  A flow ends, and frees its links, at the first whole picosecond at which
its last byte is through; flows that end together are delivered in the order in which they were
sent.

[Note: fixed point]  Shares such as a third of a link are fractions.  Rates are ints in units of
2**-256 bytes/s, rounded down, so the end of a flow comes out late by far less than 2**-96 ps, and
that much is taken off before it is rounded up.  The result is the exact one, unless the exact end
lies less than 2**-96 ps after a whole picosecond, which takes a fraction of a larger denominator
than bandwidths and numbers of flows give.  So times equal closed forms with ``==``, and depend on
nothing but the input.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from operator import attrgetter, index

import numpy as np
import simpy
from simpy.events import EventPriority

from sim.errors import UnitError
from sim.sharing import max_min_rates
from sim.topology import Topology
from sim.units import SECOND, Int64Array

_AFTER_ALL_ELSE = EventPriority(9)  # SimPy's own are 0 and 1; later means larger
_FRACTION_BITS = 256  # of rates, see [Note: fixed point]
_TRUSTED_BITS = 96  # of durations in picoseconds
_IN_ORDER_SENT = attrgetter("number")


class _Path:
    """The way between two ranks, its narrowest capacity, and what has been sent on it."""

    __slots__ = ("bytes_sent", "capacity", "latency_ps", "links")

    def __init__(self, links: tuple[int, ...], capacity: int, latency_ps: int) -> None:
        self.links = links
        self.capacity = capacity
        self.latency_ps = latency_ps
        self.bytes_sent = 0


class _Flow:
    """A message on its links.

    ``rest`` is what was left at ``since_ps``, when it got its rate, in units of rate times
    picoseconds.
    """

    __slots__ = ("done", "end_ps", "number", "path", "rate", "rest", "since_ps")

    def __init__(self, number: int, path: _Path, nbytes: int, done: simpy.Event) -> None:
        self.number = number
        self.path = path
        self.rest = nbytes * SECOND << _FRACTION_BITS
        self.rate = 0
        self.since_ps = 0
        self.end_ps = -1
        self.done = done


class _Settle(simpy.Event):
    """Happens after a delay, and after all else at that time."""

    callbacks: list[Callable[[simpy.Event], None]]

    def __init__(self, env: simpy.Environment, delay_ps: int) -> None:
        super().__init__(env)
        self._ok = True
        self._value = None
        env.schedule(self, _AFTER_ALL_ELSE, delay_ps)


class Network:
    """The links of a topology in the virtual time of a SimPy environment, in picoseconds."""

    def __init__(self, env: simpy.Environment, topology: Topology) -> None:
        """Build the network.

        Args:
            env: its time must be an int, in picoseconds.
            topology: the network to be.
        """
        self.env = env
        self.topology = topology
        self._capacity = [bandwidth << _FRACTION_BITS for bandwidth in topology.link_bandwidth.tolist()]
        self._latency_ps: list[int] = topology.link_latency.tolist()
        self._on_link: list[set[_Flow]] = [set() for _ in self._capacity]
        self._paths: dict[tuple[int, int], _Path] = {}
        self._num_flows = 0
        self._starting: dict[int, list[_Flow]] = {}
        self._ending: dict[int, list[_Flow]] = {}
        self._end_times: list[int] = []
        self._settling: set[int] = set()

    def transfer(self, source: int, destination: int, nbytes: int) -> simpy.Event:
        """Send *nbytes* from rank *source* to rank *destination*, now.

        Returns:
            A SimPy event that fires, without a value, when the last byte has arrived.

        Raises:
            TopologyError: a rank that does not exist, or a rank sending to itself.
            UnitError: a negative size.
        """
        nbytes = index(nbytes)  # NumPy's would overflow
        path = self._paths.get((source, destination)) or self._find_path(source, destination)
        if nbytes <= 0:
            if nbytes < 0:
                raise UnitError(f"nbytes: a message from rank {source} to {destination} has {nbytes} bytes")
            return self.env.timeout(path.latency_ps)
        path.bytes_sent += nbytes
        self._num_flows += 1
        flow = _Flow(self._num_flows, path, nbytes, simpy.Event(self.env))
        start_ps = int(self.env.now) + path.latency_ps
        if start_ps not in self._starting:
            self._starting[start_ps] = []
            self._settle_at(start_ps)
        self._starting[start_ps].append(flow)
        return flow.done

    @property
    def link_bytes(self) -> Int64Array:
        """Bytes of all messages sent so far over each link, delivered or under way."""
        total = np.zeros(len(self._capacity), dtype=np.int64)
        for path in self._paths.values():
            total[list(path.links)] += path.bytes_sent
        return total

    def _find_path(self, source: int, destination: int) -> _Path:
        links = self.topology.route(index(source), index(destination))
        capacity = min(self._capacity[link] for link in links)
        latency_ps = sum(self._latency_ps[link] for link in links)
        path = self._paths[source, destination] = _Path(links, capacity, latency_ps)
        return path

    def _settle_at(self, time_ps: int) -> None:
        """Have `_settle` called after everything else that happens at *time_ps*."""
        if time_ps not in self._settling:
            self._settling.add(time_ps)
            _Settle(self.env, time_ps - int(self.env.now)).callbacks.append(self._settle)

    def _settle(self, _: simpy.Event) -> None:
        """Take away what ends now, add what starts now, and share the links that this changed."""
        now = int(self.env.now)
        self._settling.discard(now)
        changed: set[int] = set()
        ended = {flow for flow in self._ending.pop(now, ()) if flow.end_ps == now}
        for flow in sorted(ended, key=_IN_ORDER_SENT):
            flow.end_ps = -1
            for link in flow.path.links:
                self._on_link[link].remove(flow)
            changed.update(flow.path.links)
            flow.done.succeed()
        for flow in self._starting.pop(now, ()):
            for link in flow.path.links:
                self._on_link[link].add(flow)
            changed.update(flow.path.links)
        self._share(changed, now)
        self._await_next_end()

    def _share(self, changed: set[int], now: int) -> None:
        """Give new rates to the flows that share links, directly or not, with *changed* ones."""
        on_link = self._on_link
        seen: set[int] = set()
        for link in changed:
            if link in seen or not on_link[link]:
                continue
            flow = next(iter(on_link[link]))
            if all(len(on_link[other]) == 1 for other in flow.path.links):
                seen.update(flow.path.links)
                self._set_rate(flow, flow.path.capacity, now)
                continue
            flows = self._connected(link, seen)
            rates = max_min_rates([flow.path.links for flow in flows], self._capacity)
            for flow, rate in zip(flows, rates, strict=True):
                self._set_rate(flow, rate, now)

    def _connected(self, link: int, seen: set[int]) -> list[_Flow]:
        """Return the flows that share links with those on *link*; add their links to *seen*."""
        flows: set[_Flow] = set()
        seen.add(link)
        waiting = [link]
        while waiting:
            for flow in self._on_link[waiting.pop()] - flows:
                flows.add(flow)
                for other in flow.path.links:
                    if other not in seen:
                        seen.add(other)
                        waiting.append(other)
        return list(flows)

    def _set_rate(self, flow: _Flow, rate: int, now: int) -> None:
        """Change the rate of *flow* and with it its end, unless it has this rate already."""
        if flow.rate == rate:
            return
        flow.rest -= flow.rate * (now - flow.since_ps)
        flow.rate = rate
        flow.since_ps = now
        flow.end_ps = now - ((rate >> _TRUSTED_BITS) - flow.rest) // rate
        if flow.end_ps not in self._ending:
            self._ending[flow.end_ps] = []
            heappush(self._end_times, flow.end_ps)
        self._ending[flow.end_ps].append(flow)

    def _await_next_end(self) -> None:
        """Settle at the next end; forget times at which, after new rates, nothing ends."""
        while self._end_times:
            end_ps = self._end_times[0]
            if any(flow.end_ps == end_ps for flow in self._ending.get(end_ps, ())):
                self._settle_at(end_ps)
                return
            heappop(self._end_times)
            self._ending.pop(end_ps, None)
