"""Schedule of flows: when each takes to its links, and when its last byte is through."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from operator import attrgetter

from sim.network.flow import Flow
from sim.network.instant import Settling

_ORDER = attrgetter("order")


def in_order(flows: Iterable[Flow]) -> list[Flow]:
    """Return *flows* in the order in which they were sent."""
    return sorted(flows, key=_ORDER)


class Schedule:
    """Starts and ends of flows that lie ahead; *settling* is asked for their instants."""

    def __init__(self, settling: Settling) -> None:
        self._settling = settling
        self._starting: dict[int, list[Flow]] = {}
        self._ending: dict[int, list[Flow]] = {}  # a flow whose ``end_ps`` has moved still stands at the old
        self._end_times: list[int] = []

    def start(self, flow: Flow, start_ps: int) -> None:
        """Note that *flow* takes to its links at *start_ps*."""
        if start_ps not in self._starting:
            self._starting[start_ps] = []
            self._settling.at(start_ps)
        self._starting[start_ps].append(flow)

    def starts(self, now: int) -> list[Flow]:
        """Return the flows that start now."""
        return self._starting.pop(now, [])

    def take_back(self, link: int) -> list[Flow]:
        """Return the flows that were to start later, or now, over *link*; they do not."""
        back: list[Flow] = []
        for flows in self._starting.values():
            back += [flow for flow in flows if link in flow.path.links]
            flows[:] = [flow for flow in flows if link not in flow.path.links]
        return back

    def end(self, flow: Flow) -> None:
        """Note that *flow* ends at its ``end_ps``."""
        if flow.end_ps not in self._ending:
            self._ending[flow.end_ps] = []
            heappush(self._end_times, flow.end_ps)
        self._ending[flow.end_ps].append(flow)

    def ends(self, now: int) -> list[Flow]:
        """Return the flows that end now, in the order in which they were sent."""
        flows = self._ending.pop(now, None)
        return in_order({flow for flow in flows if flow.end_ps == now}) if flows else []

    def await_next_end(self) -> None:
        """Settle when the next flow ends; forget times at which, after new rates, none does."""
        while self._end_times:
            end_ps = self._end_times[0]
            if any(flow.end_ps == end_ps for flow in self._ending.get(end_ps, ())):
                self._settling.at(end_ps)
                return
            heappop(self._end_times)
            self._ending.pop(end_ps, None)
