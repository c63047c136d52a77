"""Messages in virtual time: they wait for the latency of their way, then share its links.

A message is a *flow*: it first waits for the sum of the latencies of its links, then occupies all
of them at once until its last byte is through, at the rate that max-min fairness gives it among
the flows that are there (`sim.network.sharing`).  Alone on its way it takes exactly
``latency + transfer_ps(nbytes, smallest bandwidth)``.

Whatever begins and ends at one instant is collected and settled once, after everything else that
happens at that instant, and only the flows that share links with a change, directly or through
others, get new rates.  A flow ends, and frees its links, at the first whole picosecond at which
its last byte is through; flows that end together are delivered in the order in which they were
sent.

Messages that are launched together as a `sim.network.coflow.coflow.Coflow` stay together as long as they can
(`sim.network.coflow.active_set`); then, and where they are few, they are flows like all others.

[Note: fixed point]  Shares such as a third of a link are fractions.  Rates are ints in units of
2**-256 bytes/s, rounded down, so the end of a flow comes out late by far less than 2**-96 ps, and
that much is taken off before it is rounded up.  The result is the exact one, unless the exact end
lies less than 2**-96 ps after a whole picosecond, which takes a fraction of a larger denominator
than bandwidths and numbers of flows give.  So times equal closed forms with ``==``, and depend on
nothing but the input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from operator import attrgetter, index

import numpy as np
import simpy
from simpy.events import EventPriority

from sim.errors import UnitError
from sim.network.coflow import Coflow
from sim.network.coflow.active import ActiveCoflow, Arrived, Part, Single
from sim.network.coflow.active_set import MIN_BATCH, ActiveCoflows
from sim.network.coflow.classes import FRACTION_BITS, Left, amount, end_ps
from sim.network.flow import About, Arrival, Flow, Member, Path
from sim.network.recorder import Recorder
from sim.network.sharing import max_min_rates
from sim.topology import Topology
from sim.units import Int64Array

_AFTER_ALL_ELSE = EventPriority(9)  # SimPy's own are 0 and 1; later means larger
_IN_ORDER_SENT = attrgetter("number")


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

    def __init__(self, env: simpy.Environment, topology: Topology, recorder: Recorder | None = None) -> None:
        """Build the network.

        Args:
            env: its time must be an int, in picoseconds.
            topology: the network to be.
            recorder: is told how much each link carries when; then no messages stay together.
        """
        self.env = env
        self.topology = topology
        self.recorder = recorder
        self._capacity = [bandwidth << FRACTION_BITS for bandwidth in topology.link_bandwidth.tolist()]
        self._latency_ps: list[int] = topology.link_latency.tolist()
        self._on_link: list[set[Flow]] = [set() for _ in self._capacity]
        self._paths: dict[tuple[int, int], Path] = {}
        self._num_flows = 0
        self._starting: dict[int, list[Flow]] = {}
        self._ending: dict[int, list[Flow]] = {}
        self._end_times: list[int] = []
        self._settling: set[int] = set()
        self._num_active = 0
        self._departing: dict[int, list[ActiveCoflow]] = {}
        self._batches = ActiveCoflows(self._capacity, self._settle_at)
        self._ended: dict[Arrived, list[int]] = {}
        self._flown: tuple[Coflow | None, int | Int64Array] = None, 0
        self._flown_bytes = np.zeros(topology.num_links + 1, dtype=np.int64)

    def transfer(self, source: int, destination: int, nbytes: int, about: About | None = None) -> simpy.Event:
        """Send *nbytes* from rank *source* to rank *destination*, now.

        Args:
            source: where the message comes from.
            destination: where it goes.
            nbytes: its size.
            about: says what it is, should a link fail.

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
        done = Arrival(self.env, about)
        self._start_after_latency(Flow(self._num_flows, path, amount(nbytes), done))
        return done

    def launch(
        self,
        coflow: Coflow,
        nbytes: int | Int64Array,
        arrived: Arrived,
        messages: Int64Array | None = None,
    ) -> None:
        """Send the messages of *coflow*, or some of them, now.

        Args:
            coflow: messages between places of this network's topology.
            nbytes: of every message sent, or of each, shape (m,); at least 1.
            arrived: called with the numbers of messages whose last byte has just arrived, or with None
                for all that were sent; once or more, until all have.
            messages: the numbers of those to be sent, shape (m,); None: all.
        """
        if self.recorder is not None or len(coflow if messages is None else messages) < MIN_BATCH:
            self._launch_apart(coflow, nbytes, arrived, messages)
            return
        some = coflow if messages is None else coflow.select(messages)
        self._account(some, nbytes)
        for latency_ps, members, part in some.by_latency:
            everything = part is some
            sizes_there = nbytes if everything or isinstance(nbytes, int) else nbytes[members]
            names = messages if everything else members if messages is None else messages[members]
            start_ps = int(self.env.now) + latency_ps
            batch = ActiveCoflow(part, [Part(arrived, names, 0, len(part))], start_ps, sizes_there)
            self._departing.setdefault(start_ps, []).append(batch)
            self._settle_at(start_ps)

    def _launch_apart(
        self, coflow: Coflow, nbytes: int | Int64Array, arrived: Arrived, messages: Int64Array | None
    ) -> None:
        numbers = list(range(len(coflow))) if messages is None else messages.tolist()
        sizes = [nbytes] * len(numbers) if isinstance(nbytes, int) else nbytes.tolist()
        for number, size in zip(numbers, sizes, strict=True):
            source, destination = coflow.ends[number]
            flow = self._flow(Single(source, destination, arrived, number, Left(amount(size), 0, 0)))
            flow.path.bytes_sent += size
            self._start_after_latency(flow)

    @property
    def link_bytes(self) -> Int64Array:
        """Bytes of all messages sent so far over each link, delivered or under way."""
        self._account(None, 0)
        total = self._flown_bytes[:-1].copy()
        for path in self._paths.values():
            total[list(path.links)] += path.bytes_sent
        return total

    def _account(self, coflow: Coflow | None, nbytes: int | Int64Array) -> None:
        """Count what crosses each link; a coflow that repeats is counted when another one comes."""
        last, total = self._flown
        if last is coflow:
            self._flown = coflow, total + nbytes
            return
        if last is not None:
            flown = np.broadcast_to(np.asarray(total), (len(last),))
            for links in last.links.T:
                np.add.at(self._flown_bytes, links, flown)
        self._flown = coflow, nbytes

    def _start_after_latency(self, flow: Flow) -> None:
        start_ps = int(self.env.now) + flow.path.latency_ps
        if start_ps not in self._starting:
            self._starting[start_ps] = []
            self._settle_at(start_ps)
        self._starting[start_ps].append(flow)

    def _find_path(self, source: int, destination: int) -> Path:
        links = self.topology.route(index(source), index(destination))
        capacity = min(self._capacity[link] for link in links)
        latency_ps = sum(self._latency_ps[link] for link in links)
        path = self._paths[source, destination] = Path(links, capacity, latency_ps)
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
            if self.recorder is not None:
                self.recorder.note(flow.path.links, flow.rest, flow.rate, 0, now)
            self._num_active -= 1
            for link in flow.path.links:
                self._on_link[link].remove(flow)
            changed.update(flow.path.links)
            flow.done.succeed()
        landed = self._batches.land(now)
        if self._ended:
            landed += [(arrived, np.array(numbers)) for arrived, numbers in self._ended.items()]
            self._ended.clear()
        self._change_links(now, changed)
        for flow in self._starting.pop(now, ()):
            self._put_on_links(flow, changed)
        if now in self._departing:
            departing = self._departing.pop(now)
            self._go_alone(self._batches.depart(departing, self._has_no_flow), changed)
        self._share(changed, now)
        self._await_next_end()
        for arrived, numbers in landed:
            arrived(numbers)

    def _change_links(self, now: int, changed: set[int]) -> None:
        """Apply what happens to links now, and add these to *changed*; here, nothing does."""

    def _has_no_flow(self, coflow: Coflow) -> bool:
        """Return whether no flow is on the links of *coflow*."""
        on_link = self._on_link
        return not self._num_active or not any(
            on_link[link] for links in coflow.links.tolist() for link in links if link < len(on_link)
        )

    def _go_alone(self, singles: Iterable[Single], changed: set[int]) -> None:
        """Make flows of messages that leave a batch; they have a rate unless they begin now."""
        for single in list(singles):
            flow = self._flow(single)
            self._put_on_links(flow, changed)
            if single.left.rate:
                self._set_rate(flow, single.left.rate, single.left.since_ps)

    def _flow(self, single: Single) -> Flow:
        ends = single.source, single.destination
        self._num_flows += 1
        path = self._paths.get(ends) or self._find_path(*ends)
        done = Member(single.arrived, single.number, self._ended)
        return Flow(self._num_flows, path, single.left.rest, done)

    def _put_on_links(self, flow: Flow, changed: set[int]) -> None:
        for link in flow.path.links:
            if self._batches:
                self._go_alone(self._batches.disturb(link, int(self.env.now)), changed)
            self._on_link[link].add(flow)
        self._num_active += 1
        changed.update(flow.path.links)

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

    def _connected(self, link: int, seen: set[int]) -> list[Flow]:
        """Return the flows that share links with those on *link*; add their links to *seen*."""
        flows: set[Flow] = set()
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

    def _set_rate(self, flow: Flow, rate: int, now: int) -> None:
        """Change the rate of *flow* and with it its end, unless it has this rate already."""
        if flow.rate == rate:
            return
        carried = flow.rate * (now - flow.since_ps)
        if self.recorder is not None:
            self.recorder.note(flow.path.links, carried, flow.rate, rate, now)
        flow.rest -= carried
        flow.rate = rate
        flow.since_ps = now
        flow.end_ps = end_ps(now, flow.rest, rate)
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
