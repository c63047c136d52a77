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

[Note: fixed point]  Shares such as a third of a link are fractions.  Rates are ints in units of
2**-256 bytes/s, rounded down, so the end of a flow comes out late by far less than 2**-96 ps, and
that much is taken off before it is rounded up.  The result is the exact one, unless the exact end
lies less than 2**-96 ps after a whole picosecond, which takes a fraction of a larger denominator
than bandwidths and numbers of flows give.  So times equal closed forms with ``==``, and depend on
nothing but the input.
"""

from __future__ import annotations

from itertools import count
from operator import index

import simpy

from sim.errors import UnitError
from sim.network.flow import Flow, Path, Paths, amount, num_bytes
from sim.network.launch import About, Accelerator, Arrival, Connection, Launch, Sender
from sim.network.links import Links
from sim.network.lost import lost_messages
from sim.network.recorder import Recorder
from sim.network.schedule import FLOWS, Schedule, Settling, in_order
from sim.topology import Topology
from sim.topology.routing import Routing
from sim.units import Int64Array


class Network:
    """A topology in the virtual time of a SimPy environment, in picoseconds.

    Attributes:
        links: what they carry now, and the flows on them.
        accelerator: carries launches that it can carry as wholes; None: all messages are flows.
        takes_time: whether messages do; where they do not, they arrive at the instant at which they are sent.
    """

    def __init__(self, env: simpy.Environment, topology: Topology, recorder: Recorder | None = None) -> None:
        """Build the network in *env*, whose time is an int; *recorder* is told what links carry when."""
        self.env = env
        self.recorder = recorder
        self.links = Links(topology)
        self.accelerator: Accelerator | None = None
        self.takes_time = True
        self._paths = Paths(topology)
        self._order = count()
        self._lost: list[Flow] = []
        self._settling = Settling(env, FLOWS, self._settle)
        self._schedule = Schedule(self._settling)

    @property
    def topology(self) -> Topology:
        """The network with the ways that messages take now."""
        return self._paths.topology

    @property
    def link_bytes(self) -> Int64Array:
        """Bytes of all messages sent so far over each link, delivered or under way."""
        total = self._paths.link_bytes
        return total if self.accelerator is None else total + self.accelerator.link_bytes

    def transfer(
        self, source: int, destination: int, nbytes: int, about: About | None = None, channel: int = 0
    ) -> simpy.Event:
        """Send *nbytes* from rank *source* to rank *destination*, now, over connection *channel*.

        Returns a SimPy event that fires, without a value, when the last byte has arrived.  Should a link
        fail, *about* says what the message is.

        Raises:
            TopologyError: a rank that does not exist, or a rank sending to itself.
            UnitError: a negative size.
        """
        nbytes = index(nbytes)  # NumPy's would overflow
        path = self._paths.between(source, destination, channel)
        if nbytes < 0:
            raise UnitError(f"nbytes: a message from rank {source} to {destination} has {nbytes} bytes")
        if not self.takes_time:
            path.bytes_sent += nbytes
            return self.env.timeout(0)
        if not nbytes:
            return self.env.timeout(path.latency_ps)
        arrival = Arrival(self.env, about)
        self._send(path, nbytes, arrival, 0)
        return arrival

    def latency_ps(self, source: int, destination: int, channel: int = 0) -> int:
        """Return the latency of the way that a message sent now takes, in picoseconds."""
        return self._paths.between(source, destination, channel).latency_ps if self.takes_time else 0

    def launch(self, launch: Launch) -> None:
        """Send the messages of *launch*, now."""
        if not self.takes_time:
            numbers = []
            for number, connection, nbytes in launch.messages():
                self._paths.between(*connection).bytes_sent += nbytes
                numbers.append(number)
            self.env.timeout(0).callbacks.append(lambda _: launch.arrived(numbers))
        elif self.accelerator is None or not self.accelerator.try_launch(launch):
            for number, connection, nbytes in launch.messages():
                self._send(self._paths.between(*connection), nbytes, launch, number)

    def resume(self, sender: Sender, number: int, connection: Connection, rest: int, start_ps: int) -> None:
        """Let a message of which *rest* is left go on as a flow, from *start_ps* on."""
        self._start(Flow(self._paths.between(*connection), rest, sender, number, next(self._order)), start_ps)

    def add(self, flow: Flow) -> None:
        """Put *flow* on its links, now."""
        self._put(flow)
        self._settling.at(int(self.env.now))

    def remove(self, flow: Flow) -> None:
        """Take *flow* from its links, now; its ``rest`` is then what is left of it."""
        self._set_rate(flow, 0, int(self.env.now))
        self.links.take_off(flow)
        self._settling.at(int(self.env.now))

    def set_bandwidth(self, link: int, bandwidth: int) -> None:
        """Let *link* carry *bandwidth* bytes/s from now on."""
        self._leave(link)
        self.links.set_bandwidth(link, bandwidth)
        if self.recorder is not None:
            self.recorder.change(link, bandwidth, int(self.env.now))

    def fail(self, link: int, routing: Routing | None = None, reason: str = "") -> None:
        """Let *link* carry nothing from now on.

        What is left of messages on it or on their way to it, and what is sent later, takes the ways of
        *routing*, after their latency.  Without one it is lost, for *reason*, and the run ends with a
        `LinkFailedError`.
        """
        now = int(self.env.now)
        self._leave(link)
        self.links.fail(link, reason)
        if routing is not None:
            self._paths.reroute(link, routing)

        stopped = in_order(flow for flow in self.links.flows_on(link) if flow.end_ps != now)
        for flow in stopped:
            self.remove(flow)
        for flow in [*stopped, *self._schedule.take_back(link)]:
            flow.path = self._paths.instead_of(flow.path, num_bytes(flow.rest))
            self._start(flow, now + flow.path.latency_ps)

    def _leave(self, link: int) -> None:
        """Let *link* be used by flows alone, and anew from the end of this instant on."""
        if self.accelerator is not None:
            self.accelerator.leave(link)
        self._settling.at(int(self.env.now))

    def _send(self, path: Path, nbytes: int, sender: Sender, number: int) -> None:
        path.bytes_sent += nbytes
        flow = Flow(path, amount(nbytes), sender, number, next(self._order))
        self._start(flow, int(self.env.now) + path.latency_ps)

    def _start(self, flow: Flow, start_ps: int) -> None:
        """Put *flow* on its links at *start_ps*; it is lost if one of them has failed."""
        if not self.links.are_up(flow.path.links):
            self._lost.append(flow)
            self._settling.at(int(self.env.now))
        elif start_ps == self.env.now:
            self.add(flow)
        else:
            self._schedule.start(flow, start_ps)

    def _settle(self, now: int) -> None:
        """Take away what ends now, put on what starts now, and share the links that this has changed."""
        arrived: dict[Sender, list[int]] = {}
        for flow in self._schedule.ends(now):
            flow.end_ps = -1
            if self.recorder is not None:
                self.recorder.note(flow.path.links, flow.rest, flow.rate, 0, now)
            self.links.take_off(flow)
            arrived.setdefault(flow.sender, []).append(flow.number)
        if self._lost:
            raise lost_messages(self.topology, self._lost, self.links.down, now)

        for flow in self._schedule.starts(now):
            self._put(flow)

        for flow, rate in self.links.shares():
            self._set_rate(flow, rate, now)
        if self.recorder is not None:
            for link in self.links.resized:
                self.recorder.limit(link, self.links.capacity[link], now)
            self.links.resized.clear()
        self._schedule.await_next_end()

        for sender, numbers in arrived.items():
            sender.arrived(numbers)

    def _put(self, flow: Flow) -> None:
        if self.accelerator is not None:
            self.accelerator.disturb(flow.path.links)
        self.links.put(flow)

    def _set_rate(self, flow: Flow, rate: int, now: int) -> None:
        """Change the rate of *flow* and with it its end, unless it has this rate already."""
        before = flow.rate
        if rate == before:
            return
        carried = flow.change_rate(rate, now)
        if self.recorder is not None:
            self.recorder.note(flow.path.links, carried, before, rate, now)
        if flow.end_ps >= 0:
            self._schedule.end(flow)
