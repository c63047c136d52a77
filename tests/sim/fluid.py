"""Messages on a network by brute force: in fractions, raising all rates together after each change."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from sim import Background, Topology
from sim.units import SECOND

Message = tuple[int, int, int, int]
"""When it is sent (ps), source, destination, bytes."""

Change = tuple[int, int, int]
"""From when on (ps), a link, what it carries (bytes/s); 0: it has failed, and messages go round it."""


@dataclass
class _Flow:
    source: int
    destination: int
    sent: int
    rest: Fraction | None  # None: endless
    start: int
    route: list[int] = field(default_factory=list)
    cap: Fraction | None = None
    stop: int | None = None
    end: int | None = None

    def take(self, topology: Topology) -> None:
        self.route = list(topology.route(self.source, self.destination))


def fluid(
    topology: Topology,
    messages: Sequence[Message],
    changes: Sequence[Change] = (),
    backgrounds: Sequence[Background] = (),
) -> list[int]:
    """Return when each message arrives."""
    flows = [
        _Flow(source, destination, sent, Fraction(nbytes * SECOND), sent)
        for sent, source, destination, nbytes in messages
    ]
    others = [
        _Flow(
            one.source, one.destination, one.start_ps,
            None if one.nbytes is None else Fraction(one.nbytes * SECOND), one.start_ps,
            cap=None if one.rate is None else Fraction(one.rate), stop=one.stop_ps,
        )
        for one in backgrounds
    ]  # fmt: skip
    capacity = [Fraction(bandwidth) for bandwidth in topology.link_bandwidth.tolist()]
    down = set()
    waiting = sorted(changes)
    now = 0

    def latency(flow):
        return sum(int(topology.link_latency[link]) for link in flow.route)

    while any(flow.end is None for flow in flows):
        while waiting and waiting[0][0] <= now:
            _, link, bandwidth = waiting.pop(0)
            if bandwidth:
                capacity[link] = Fraction(bandwidth)
                continue
            down.add(link)
            for flow in [*flows, *others]:
                if flow.end is None and link in flow.route:
                    flow.take(topology.without_links(down))
                    flow.start = now + latency(flow) if flow in flows else now
        for flow in flows:
            if not flow.route and flow.sent <= now:
                flow.take(topology.without_links(down) if down else topology)
                flow.start = now + latency(flow)
                if not flow.rest:
                    flow.end = flow.start
        for flow in others:
            if not flow.route and flow.sent <= now:
                flow.take(topology.without_links(down) if down else topology)
            if flow.stop is not None and flow.stop <= now and flow.end is None:
                flow.end = flow.stop
        active = [flow for flow in [*flows, *others] if flow.end is None and flow.route and flow.start <= now]
        rates_of = max_min(
            [dict.fromkeys(flow.route, 1) for flow in active],
            _shared(topology, capacity, active),
            [flow.cap for flow in active],
        )
        rates = {id(flow): rate for flow, rate in zip(active, rates_of, strict=True)}
        ends = {id(flow): now + math.ceil(flow.rest / rates[id(flow)]) for flow in active if flow.rest}
        times = [
            *ends.values(), *(at for at, _, _ in waiting), *(flow.sent for flow in [*flows, *others]),
            *(flow.start for flow in [*flows, *others] if flow.end is None),
            *(flow.stop for flow in others if flow.stop is not None),
        ]  # fmt: skip
        later = min((time for time in times if time > now), default=None)
        if later is None:
            break
        for flow in active:
            if flow.rest is not None:
                flow.rest -= rates[id(flow)] * (later - now)
                if ends[id(flow)] == later:
                    flow.end = later
        now = later
    return [flow.end if flow.end is not None else -1 for flow in flows]


def _shared(topology: Topology, capacity: list[Fraction], active: list[_Flow]) -> list[Fraction]:
    """Return what is left of each capacity by the sharing tables, in whole bytes/s."""
    if topology.sharing is None:
        return capacity
    left = list(capacity)
    for link in range(topology.num_links):
        flows = sum(link in flow.route for flow in active)
        back = any(int(topology.sharing.opposite[link]) in flow.route for flow in active)
        table = topology.sharing.tables[int(topology.sharing.table[link])]
        parts = table.both_ways if back else table.one_way
        if flows:
            part = Fraction(str(parts[min(flows, len(parts)) - 1]))
            left[link] = Fraction(max(1, math.floor(capacity[link] * part)))
    return left


def max_min(
    flows: Sequence[Mapping[int, Fraction | int]],
    capacity: Sequence[Fraction | int],
    caps: Sequence[Fraction | None] | None = None,
) -> list[Fraction]:
    """Return the rates of flows that put parts of themselves on links, raised till links or caps are full."""
    rates = [Fraction(0)] * len(flows)
    rising = set(range(len(flows)))
    while rising:
        room = {}
        for link in {link for flow in rising for link in flows[flow]}:
            used = [parts[link] * rate for parts, rate in zip(flows, rates, strict=True) if link in parts]
            room[link] = (capacity[link] - sum(used)) / sum(flows[flow].get(link, 0) for flow in rising)
        below = {flow: caps[flow] - rates[flow] for flow in rising if caps and caps[flow] is not None}
        step = min([*room.values(), *below.values()])
        for flow in rising:
            rates[flow] += step
        full = {link for link, left in room.items() if left == step}
        rising = {flow for flow in rising if not full & flows[flow].keys() and below.get(flow) != step}
    return rates
