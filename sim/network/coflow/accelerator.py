"""Accelerator for coflows: it times messages that set out together at once, without a flow for each.

While an active coflow has its links to itself, all its ends are known.  One that comes to links of others
at one instant becomes one with them, as long as the whole has symmetry enough.  Where it has not, and where
a flow comes to its links, it dissolves into flows.  No link ever has both, and where sharing tables tell
directions apart, no cable (`sim.network.coflow.coflow.Coflow.reach`).

Messages that dissolve after all cost more than those that were flows from the start.  So once `MAX_DISSOLVED`
launches of a sender have, those are tried that have all messages of a coflow, as its ranks keep in step, and
parts of one no more.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from sim.network.coflow.active import ActiveCoflow, LaunchSlice, Remainder
from sim.network.coflow.coflow import Coflow
from sim.network.coflow.launch import CoflowLaunch
from sim.network.launch import Launch
from sim.network.network import Network
from sim.network.schedule import COFLOWS, Settling
from sim.units import Int64Array

MIN_MESSAGES = 12
"""Messages from which on a launch is timed as a whole; fewer are quicker as flows."""

MAX_DISSOLVED = 2
"""Launches of a sender that went on as flows all the same, from which on parts of coflows are not tried."""

_REMEMBERED = 16


class CoflowAccelerator:
    """Carries coflows on *network*; a `sim.network.launch.Accelerator`.

    Args:
        network: whose accelerator it is to be.
        min_messages: a launch of fewer goes as flows.
    """

    def __init__(self, network: Network, min_messages: int = MIN_MESSAGES) -> None:
        self._network = network
        self._min_messages = min_messages
        self._settling = Settling(network.env, COFLOWS, self._settle)
        self._departing: dict[int, list[ActiveCoflow]] = {}
        self._active: dict[int, ActiveCoflow] = {}
        self._num_begun = 0
        num_links = network.topology.num_links
        self._on_link = np.zeros(num_links + 1, dtype=np.int64)  # the last stands for no link
        self._ends: dict[int, list[int]] = {}
        self._landed: list[tuple[CoflowLaunch, Int64Array | None]] = []
        self._joined: OrderedDict[tuple[int, int], tuple[Coflow, Coflow, Coflow]] = OrderedDict()
        self._counted = np.zeros(num_links + 1, dtype=np.int64)
        self._to_count: tuple[Coflow | None, int | Int64Array] = None, 0

    def try_launch(self, launch: Launch) -> bool:
        """Carry *launch*, which is sent now, and return True; or return False.

        It must be a `CoflowLaunch` of enough messages, over links that are as the topology says; a part of a
        coflow only while few launches of its sender have dissolved.
        """
        if not isinstance(launch, CoflowLaunch) or len(launch) < self._min_messages:
            return False
        if launch.numbers is not None and launch.attempts.num_dissolved >= MAX_DISSOLVED:
            return False
        altered = self._network.links.altered
        if self._network.recorder is not None:
            return False
        if altered and np.isin(launch.coflow.links, list(altered)).any():
            return False

        coflow, numbers, nbytes = launch.coflow, launch.numbers, launch.nbytes
        some = coflow if numbers is None else coflow.select(numbers)
        self._count(some, nbytes)
        for latency_ps, members, part in some.by_latency:
            if part is not some:
                numbers = members if launch.numbers is None else launch.numbers[members]
                nbytes = launch.nbytes if isinstance(launch.nbytes, int) else launch.nbytes[members]
            start_ps = int(self._network.env.now) + latency_ps
            slices = [LaunchSlice(launch, numbers, 0, len(part))]
            self._departing.setdefault(start_ps, []).append(ActiveCoflow(part, slices, start_ps, nbytes))
            self._settling.at(start_ps)
        return True

    def disturb(self, links: Sequence[int]) -> None:
        """Let messages that are carried over *links* go on as flows: a flow comes to these."""
        if not self._active:
            return
        now = int(self._network.env.now)
        self._land(now)
        for link in links:
            number = int(self._on_link[link]) if link < len(self._on_link) else 0
            if number:
                self._resume(self._dissolve(number, now), now)

    def leave(self, link: int) -> None:
        """Do so, too, with messages on their way to *link*, and carry none over it any more: it changes."""
        self.disturb([link])
        for start_ps, departing in self._departing.items():
            apart = [active for active in departing if (active.coflow.links == link).any()]
            departing[:] = [active for active in departing if active not in apart]
            for active in apart:
                self._resume(self._remainders(active, start_ps), start_ps)

    @property
    def link_bytes(self) -> Int64Array:
        """The bytes of all messages that it has launched over each link, int64 of shape (num_links,)."""
        self._count(None, 0)
        return self._counted[:-1]

    def _count(self, coflow: Coflow | None, nbytes: int | Int64Array) -> None:
        """Count what crosses each link; a coflow that repeats is counted when another one comes."""
        last, total = self._to_count
        if last is coflow:
            self._to_count = coflow, total + nbytes
            return
        if last is not None:
            launched = np.broadcast_to(np.asarray(total), (len(last),))
            for links in last.links.T:
                np.add.at(self._counted, links, launched)
        self._to_count = coflow, nbytes

    def _settle(self, now: int) -> None:
        """End what ends now, begin what begins now, and tell of the ends."""
        self._land(now)
        self._resume(self._depart(self._departing.pop(now, [])), now)

        landed, self._landed = self._landed, []
        for launch, numbers in landed:
            launch.tell(numbers)

    def _land(self, now: int) -> None:
        """Note the messages that end now, and free the links of coflows that have ended."""
        for number in self._ends.pop(now, ()):
            active = self._active.get(number)
            if active is not None:
                self._landed += active.ended_at(now)
                if int(active.ends_ps.max()) == now:
                    self._take_off(number)

    def _depart(self, departing: list[ActiveCoflow]) -> Iterator[Remainder]:
        """Let coflows take to their links now; yield the messages that go as flows."""
        begun: set[int] = set()
        for active in departing:
            now = active.start_ps
            there = self._on_link[active.coflow.reach]
            met = [number for number in np.unique(there).tolist() if number] if there.any() else []
            begun.difference_update(met)

            too_few = len(active.coflow) < self._min_messages and not met
            if too_few or self._meets_flows(active.coflow):
                yield from self._remainders(active, now)
                for number in met:
                    yield from self._dissolve(number, now)
                continue

            whole: ActiveCoflow | None = active
            for number in met:
                other = self._take_off(number)
                one = None if whole is None else self._one_of(other, whole, now)
                if one is None:
                    yield from self._remainders(other, now)
                    if whole is not None:
                        yield from self._remainders(whole, now)
                whole = one
            if whole is not None:
                begun.add(self._put(whole))

        for number in sorted(begun):
            active = self._active[number]
            if active.work_out():
                for end in active.end_times():
                    self._ends.setdefault(end, []).append(number)
                    self._settling.at(end)
            else:
                yield from self._dissolve(number, active.start_ps)

    def _meets_flows(self, coflow: Coflow) -> bool:
        """Return whether flows are on links of *coflow*."""
        links = self._network.links
        return links.num_flows > 0 and not links.are_free(coflow.reached)

    def _one_of(self, first: ActiveCoflow, second: ActiveCoflow, now: int) -> ActiveCoflow | None:
        """Return two as one that begins *now*; None where too little symmetry is left."""
        if first.is_fresh(now) and second.is_fresh(now):
            return first.joined(second, self._join(first.coflow, second.coflow))
        rests = [one if one.start_ps == now else one.remainder(now) for one in (first, second)]
        if rests[0] is None or rests[1] is None:
            return None
        return rests[0].followed_by(rests[1])

    def _join(self, first: Coflow, second: Coflow) -> Coflow:
        """Return the coflow of both; those that meet once often meet again."""
        key = id(first), id(second)
        if key not in self._joined:
            self._joined[key] = first, second, first.joined(second)
            if len(self._joined) > _REMEMBERED:
                self._joined.popitem(last=False)
        self._joined.move_to_end(key)
        return self._joined[key][2]

    def _put(self, active: ActiveCoflow) -> int:
        self._num_begun += 1
        self._active[self._num_begun] = active
        self._on_link[active.coflow.reach] = self._num_begun
        self._on_link[-1] = 0
        return self._num_begun

    def _take_off(self, number: int) -> ActiveCoflow:
        active = self._active.pop(number)
        self._on_link[active.coflow.reach] = 0
        return active

    def _dissolve(self, number: int, now: int) -> Iterator[Remainder]:
        return self._remainders(self._take_off(number), now)

    def _remainders(self, active: ActiveCoflow, now: int) -> Iterator[Remainder]:
        return active.remainders(now, self._network.links.capacities)

    def _resume(self, remainders: Iterable[Remainder], start_ps: int) -> None:
        """Let messages go on as flows, once all of them are known: a flow may disturb other coflows."""
        known = list(remainders)
        for launch in {launch for launch, *_ in known}:
            launch.attempts.num_dissolved += 1
        for launch, number, connection, rest in known:
            self._network.resume(launch, number, connection, rest, start_ps)
