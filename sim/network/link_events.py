"""A network whose links change or fail while messages are on them, with other traffic beside these.

Capacities are constant from one change to the next, so rates, and what is left of each flow, stay exact.
At an instant, what ends then has ended; then links change, and then new flows take to them.

A message on a link that fails, or on its way to it, is lost, unless there is another way: then what is
left of it waits for the latency of that and goes on.  A lost message ends the run (`LinkFailedError`).

Messages that are launched together go over a link that has changed each by itself.  Who is told that
they have arrived may have a method ``describe``, which says what a message is, as `sim.network.network.About`
does.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import simpy

from sim.errors import LinkFailedError, TopologyError
from sim.network.coflow import Coflow
from sim.network.coflow.active import Arrived
from sim.network.coflow.classes import FRACTION_BITS, amount
from sim.network.flow import Arrival, Flow, Path
from sim.network.network import Network
from sim.network.recorder import Recorder
from sim.scenario.conditions import Background
from sim.topology import Topology
from sim.topology.routing import Routing
from sim.units import Int64Array, format_time

_SHOWN = 4  # lost messages that an error lists

_Event = Callable[[int, set[int]], None]
"""Something that happens to links at a time; it adds those links to the set."""


@dataclass(frozen=True)
class BandwidthChange:
    """From *at_ps* on, *link* carries *bandwidth* bytes/s."""

    at_ps: int
    link: int
    bandwidth: int


@dataclass(frozen=True)
class Failure:
    """From *at_ps* on, *link* carries nothing; with *reroute*, messages find another way."""

    at_ps: int
    link: int
    reroute: bool


class _Stream(Flow):
    """Background traffic.

    Attributes:
        ends: source and destination.
        cap: the link that only it crosses, if its rate is limited.
        endless: whether it ends only when it is stopped.
    """

    __slots__ = ("cap", "endless", "ends")

    def __init__(self, background: Background, number: int, cap: int | None, env: simpy.Environment) -> None:
        rest = 0 if background.nbytes is None else amount(background.nbytes)
        super().__init__(number, Path((), 0, 0), rest, Arrival(env, None))
        self.ends = background.source, background.destination
        self.cap = cap
        self.endless = background.nbytes is None


class ChangingNetwork(Network):
    """A network on which something happens at times that are known beforehand."""

    def __init__(
        self,
        env: simpy.Environment,
        topology: Topology,
        *,
        changes: Iterable[BandwidthChange] = (),
        failures: Iterable[Failure] = (),
        backgrounds: Sequence[Background] = (),
        without: Callable[[Collection[int]], Routing] | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        """Build the network.

        Args:
            env: its time must be an int, in picoseconds.
            topology: the network to be, until something happens.
            changes: of bandwidths.
            failures: of links.
            backgrounds: other traffic.
            without: returns the routing that avoids links, or raises `TopologyError`; by default that of
                *topology*.
            recorder: of *topology*, as for `Network`.
        """
        rates = [background.rate for background in backgrounds if background.rate is not None]
        super().__init__(env, _with_links(topology, rates), recorder)
        if recorder is not None:
            recorder.add_links(rates)
        caps = iter(range(topology.num_links, self.topology.num_links))
        self._due: defaultdict[int, list[_Event]] = defaultdict(list)
        self._down: dict[int, str] = {}  # with why there is no other way, where one was sought
        self._avoided: frozenset[int] = frozenset()
        self._without = without or (lambda links: topology.without_links(links).routing)
        self._lost: list[Flow] = []
        self._streams: list[_Stream] = []
        for change in changes:
            self._at(change.at_ps, partial(self._set_bandwidth, change.link, change.bandwidth))
        for failure in failures:
            self._at(failure.at_ps, partial(self._fail, failure.link, failure.reroute))
        for number, background in enumerate(backgrounds):
            cap = None if background.rate is None else next(caps)
            stream = _Stream(background, -1 - number, cap, env)
            self._streams.append(stream)
            self._at(background.start_ps, partial(self._begin, stream))
            if background.stop_ps is not None:
                self._at(background.stop_ps, partial(self._stop, stream))

    def launch(
        self,
        coflow: Coflow,
        nbytes: int | Int64Array,
        arrived: Arrived,
        messages: Int64Array | None = None,
    ) -> None:
        """Send the messages of *coflow*, or some of them, now; see `Network.launch`."""
        if self._down and np.isin(coflow.links, list(self._down)).any():
            self._launch_apart(coflow, nbytes, arrived, messages)
        else:
            super().launch(coflow, nbytes, arrived, messages)

    def _at(self, time_ps: int, event: _Event) -> None:
        self._due[time_ps].append(event)
        self._settle_at(time_ps)

    def _change_links(self, now: int, changed: set[int]) -> None:
        for event in self._due.pop(now, ()):
            event(now, changed)
        if self._lost:
            raise self._failure()

    def _set_bandwidth(self, link: int, bandwidth: int, now: int, changed: set[int]) -> None:
        self._bar(link, now, changed)
        self._capacity[link] = bandwidth << FRACTION_BITS
        if self.recorder is not None:
            self.recorder.change(link, bandwidth, now)
        for path in (*self._paths.values(), *(stream.path for stream in self._streams)):
            if link in path.links:
                path.capacity = min(self._capacity[other] for other in path.links)
        changed.add(link)

    def _bar(self, link: int, now: int, changed: set[int]) -> None:
        """Let messages that are launched together go over *link* each by itself, from now on."""
        self._go_alone(self._batches.disturb(link, now), changed)
        self._batches.bar(link)

    def _fail(self, link: int, reroute: bool, now: int, changed: set[int]) -> None:
        """Let *link* carry nothing more; what was to cross it takes another way, or is lost."""
        self._bar(link, now, changed)
        touched = sorted(self._on_link[link], key=lambda flow: flow.number)
        for flow in touched:
            self._take_off(flow, now, changed)
        touched += self._take_back(link)
        self._down[link] = ""
        if reroute:
            try:
                routing = self._without(self._avoided | {link})
            except TopologyError as error:
                self._down[link] = str(error)
            else:
                self._avoided |= {link}
                self.topology = replace(self.topology, routing=routing)
        ends = self._forget_paths(link)
        for flow in touched:
            if isinstance(flow, _Stream):
                self._begin(flow, now, changed)
            else:
                self._send_rest(flow, *ends[flow.path])

    def _take_back(self, link: int) -> list[Flow]:
        """Return what was to take to *link* later; what sets out together with it, goes by itself."""
        for start_ps, batches in self._departing.items():
            apart = [batch for batch in batches if (batch.coflow.links == link).any()]
            self._departing[start_ps] = [batch for batch in batches if batch not in apart]
            for batch in apart:
                singles = batch.singles(start_ps, self._capacity)
                self._starting.setdefault(start_ps, []).extend(map(self._flow, singles))
        back: list[Flow] = []
        for start_ps, flows in self._starting.items():
            back += [flow for flow in flows if link in flow.path.links]
            self._starting[start_ps] = [flow for flow in flows if link not in flow.path.links]
        return back

    def _send_rest(self, flow: Flow, source: int, destination: int) -> None:
        """Send what is left of *flow* by the way that messages take now."""
        left = -(-flow.rest // amount(1))
        self._flown_bytes[list(flow.path.links)] -= left
        flow.path = self._paths.get((source, destination)) or self._find_path(source, destination)
        flow.path.bytes_sent += left
        self._start_after_latency(flow)

    def _forget_paths(self, link: int) -> dict[Path, tuple[int, int]]:
        """Forget the paths over *link*, but not what they have carried; return whose they were."""
        ends = {path: pair for pair, path in self._paths.items() if link in path.links}
        for path, pair in ends.items():
            self._flown_bytes[list(path.links)] += path.bytes_sent
            del self._paths[pair]
        return ends

    def _take_off(self, flow: Flow, now: int, changed: set[int]) -> None:
        """Take *flow* from its links, and note what is left of it."""
        for link in flow.path.links:
            self._on_link[link].remove(flow)
        changed.update(flow.path.links)
        self._num_active -= 1
        flow.rest -= self._move(flow, 0, now)
        flow.end_ps = -1

    def _move(self, flow: Flow, rate: int, now: int) -> int:
        """Give *flow* another rate without an end; return what it has carried at the one before."""
        carried = flow.rate * (now - flow.since_ps)
        if self.recorder is not None:
            self.recorder.note(flow.path.links, carried, flow.rate, rate, now)
        flow.rate, flow.since_ps = rate, now
        return carried

    def _begin(self, stream: _Stream, now: int, changed: set[int]) -> None:
        route = self.topology.route(*stream.ends)
        links = route if stream.cap is None else (*route, stream.cap)
        stream.path = Path(links, min(self._capacity[link] for link in links), 0)
        if self._down.keys().isdisjoint(links):
            self._put_on_links(stream, changed)

    def _stop(self, stream: _Stream, now: int, changed: set[int]) -> None:
        if stream in self._on_link[stream.path.links[0]]:
            self._take_off(stream, now, changed)

    def _start_after_latency(self, flow: Flow) -> None:
        if self._down.keys().isdisjoint(flow.path.links):
            super()._start_after_latency(flow)
        else:
            self._lost.append(flow)
            self._settle_at(int(self.env.now))

    def _set_rate(self, flow: Flow, rate: int, now: int) -> None:
        if isinstance(flow, _Stream) and flow.endless:
            self._move(flow, rate, now)
        else:
            super()._set_rate(flow, rate, now)

    def _failure(self) -> LinkFailedError:
        """Return the error that says what was lost."""
        crossed = {link for flow in self._lost for link in flow.path.links}
        down = [link for link in self._down if link in crossed]
        names = tuple(self.topology.link_name(link) for link in down)
        ends = {path: pair for pair, path in self._paths.items()}
        lost = tuple(_describe(flow, *ends[flow.path]) for flow in self._lost)
        told: defaultdict[str, list[str]] = defaultdict(list)
        for what, message in lost[:_SHOWN]:
            told[what].append(message)
        listed = "; ".join(f"{what}, {', '.join(messages)}" for what, messages in told.items())
        more = f" and {len(lost) - _SHOWN} more messages" * (len(lost) > _SHOWN)
        reasons = [reason for link in down if (reason := self._down[link])]
        advice = reasons or ["with reroute=True messages take another way where there is one"]
        now = int(self.env.now)
        message = (
            f"{self.topology.name}: link {' and '.join(names)} has failed; lost at {format_time(now)}: "
            f"{listed}{more}; {'; '.join(advice)}"
        )
        return LinkFailedError(names, now, lost, message)


def _describe(flow: Flow, source: int, destination: int) -> tuple[str, str]:
    done = flow.done
    if isinstance(done, Arrival):
        if done.about is not None:
            return done.about()
    elif describe := getattr(done.arrived, "describe", None):
        what, message = describe(done.number)
        return what, message
    return "a message", f"rank {source} to rank {destination}"


def _with_links(topology: Topology, bandwidths: Sequence[int]) -> Topology:
    """Return *topology* with further links, which are on no route."""
    if not bandwidths:
        return topology
    return replace(
        topology,
        link_bandwidth=np.append(topology.link_bandwidth, bandwidths),
        link_latency=np.append(topology.link_latency, np.zeros(len(bandwidths), dtype=np.int64)),
    )
