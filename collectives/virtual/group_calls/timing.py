"""Timing of the calls of families: alone on their links where they are, beside those that they meet else.

A rank that begins a call holds the links that its messages may cross (`footprint`).  As long as nobody
else holds these, the call is worked out by itself as soon as all ranks of a group have come; an outcome
that is known is not worked out again (`alone`).  Where two calls meet on a link, both are repeated on a
network that they share (`congestion`), so times are what they are with every message on one network.

Assumption, and only where more than `MAX_MESSAGES` messages would be under way on such a network, or more
than `MAX_CARRIED` in a whole run: calls that meet are timed one by one, as if each had its links to itself,
which is too fast.  How often that was, and how long they were in flight together, is counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import simpy

from collectives.communicators.point_to_point import message
from collectives.program import Algorithm
from collectives.virtual.group_calls.alone import CallsAlone, Outcome
from collectives.virtual.group_calls.congestion import Congestion
from collectives.virtual.group_calls.family import CallFacts, Family
from collectives.virtual.group_calls.family_call import FamilyCall
from collectives.virtual.group_calls.footprint import Footprint, LinksInUse
from collectives.virtual.progress import TOGETHER
from collectives.virtual.streams.score import Through
from sim.network.schedule import LAST, Settling
from sim.units import Int64Array

MAX_MESSAGES = 60_000
"""Messages of calls that meet up to which they are carried one by one on a network."""

MAX_CARRIED = 2_000_000
"""Messages of a run that are carried so; a million takes about a minute."""


@dataclass(eq=False)
class _Batch:
    """Groups of a call whose outcome is known, until the last rank is through."""

    call: FamilyCall
    places: Int64Array
    holder: int
    outcome: Outcome
    since_ps: int
    is_void: bool = False


class FamilyTiming:
    """The calls of families of groups on one topology.

    Attributes:
        overlaps: how often calls of two kinds were timed one by one though they met, and how long both were
            in flight, in picoseconds.
    """

    def __init__(self, env: simpy.Environment, alone: CallsAlone) -> None:
        self.overlaps: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
        self._env = env
        self._alone = alone
        self._in_use = LinksInUse(alone.scenario.topology.num_links)
        self._calls: dict[tuple[int, Any, int], FamilyCall] = {}
        self._key_of: dict[FamilyCall, tuple[int, Any, int]] = {}
        self._footprints: dict[Hashable, Footprint] = {}
        self._call_of: dict[int, FamilyCall] = {}
        self._batches: defaultdict[FamilyCall, list[_Batch]] = defaultdict(list)
        self._congestion_of: dict[FamilyCall, Congestion] = {}
        self._num_carried = 0
        self._beside: defaultdict[FamilyCall, dict[FamilyCall, int]] = defaultdict(dict)
        self._settling = Settling(env, LAST, self._settle)
        self._to_settle: dict[FamilyCall, None] = {}
        self._link_bytes = np.zeros(alone.scenario.topology.num_links, dtype=np.int64)

    def unfinished(self) -> Iterator[tuple[FamilyCall, Any]]:
        """Yield the calls that are not over, with the ordinals of their communicators."""
        for (_, ordinal, _), call in self._calls.items():
            yield call, ordinal

    @property
    def link_bytes(self) -> Int64Array:
        """What has crossed each link of the network, or is under way, int64 of shape (num_links,)."""
        meeting = {id(one): one.link_bytes for one in self._congestion_of.values()}
        return self._link_bytes + sum(meeting.values(), start=np.zeros_like(self._link_bytes))

    def begin(
        self,
        family: Family,
        ordinal: Hashable,
        facts: CallFacts,
        ranks: tuple[int, ...],
        through: Through,
    ) -> None:
        """Let *ranks*, members of *family*, come to a call now."""
        lane = facts.call.lane
        if lane is not None:
            family, facts = family.pairs(*lane[:2]), replace(facts, algorithm=message(0, 1))
        key = id(family), ordinal, facts.call.fingerprint()
        call = self._calls.get(key)
        if call is None:
            footprint = self._footprint(family, facts.algorithm)
            call = FamilyCall(family, facts, footprint, self._in_use.new_holder())
            self._calls[key] = self._call_of[call.holder] = call
            self._key_of[call] = key

        now_ps, places = int(self._env.now), family.places(ranks)
        call.come(now_ps, ranks, places, facts, through)
        links = call.footprint.links[call.footprint.positions_of(places)]
        congestion = self._congestion_of.get(call)
        met = self._met(call, links, now_ps)
        joined = self._congestion_to_join(call, met)
        if met and self._may_meet(call, met, joined, now_ps):
            if joined is not None:
                self._join(call, places, links, joined)
            else:
                self._congest([call, *met])
            return

        self._in_use.hold(links, call.holder)
        if congestion is not None:
            congestion.begin(call, places)
        else:
            self._to_settle[call] = None
            self._settling.at(now_ps)

    def _footprint(self, family: Family, algorithm: Algorithm) -> Footprint:
        key = id(family), algorithm.program, str(algorithm), algorithm.collective
        if key not in self._footprints:
            self._footprints[key] = Footprint(self._alone.scenario.topology, family, algorithm)
        return self._footprints[key]

    def _met(self, call: FamilyCall, links: Int64Array, now_ps: int) -> list[FamilyCall]:
        """Return the calls that hold one of *links*, but those that *call* has met already."""
        holders = self._in_use.others_on(links, call.holder, now_ps)
        met = dict.fromkeys(self._call_of[holder] for holder in holders)
        own = self._congestion_of.get(call)
        return [one for one in met if own is None or self._congestion_of.get(one) is not own]

    def _may_meet(
        self, call: FamilyCall, met: list[FamilyCall], joined: Congestion | None, now_ps: int
    ) -> bool:
        """Return whether *call* and those *met* can be carried message by message; else count the overlap."""
        everybody = dict.fromkeys(self._with_congested([call, *met]))
        num_messages = sum(map(_num_messages, everybody))
        num_carried = num_messages if joined is None else _num_messages(call)
        if num_messages <= MAX_MESSAGES and self._num_carried + num_carried <= MAX_CARRIED:
            self._num_carried += num_carried
            return True
        for other in met:
            if other.num_in_flight and other is not call and call not in self._beside.get(other, ()):
                self._beside[call].setdefault(other, now_ps)
        return False

    def _count_overlaps(self, ended: FamilyCall) -> None:
        """Count how long *ended*, of which nobody is in flight now, was beside others as if alone."""
        pairs = [(ended, other) for other in self._beside.get(ended, ())]
        pairs += [(other, ended) for other, beside in self._beside.items() if ended in beside]
        for one, other in pairs:
            overlap = self.overlaps[_kind(one), _kind(other)]
            overlap[0] += 1
            overlap[1] += int(self._env.now) - self._beside[one].pop(other)
        self._beside.pop(ended, None)

    def _with_congested(self, calls: Iterable[FamilyCall]) -> Iterator[FamilyCall]:
        """Yield *calls* and all that those have met of them that have met any."""
        for call in calls:
            congestion = self._congestion_of.get(call)
            yield from [call] if congestion is None else congestion.calls

    def _congestion_to_join(self, call: FamilyCall, met: list[FamilyCall]) -> Congestion | None:
        """Return where all *met* are, if *call* begins only now, so that nothing is to be repeated."""
        if call in self._congestion_of or len(call.begins) > 1 or not met:
            return None
        congestions = {self._congestion_of.get(one) for one in met}
        return congestions.pop() if len(congestions) == 1 else None

    def _join(self, call: FamilyCall, places: Int64Array, links: Int64Array, congestion: Congestion) -> None:
        """Let *call*, to which the ranks at *places* come now, be carried beside those that have met."""
        self._call_of.pop(call.holder, None)
        call.holder = congestion.calls[0].holder
        self._in_use.hold(links, call.holder)
        self._congestion_of[call] = congestion
        congestion.begin(call, places)

    def _congest(self, calls: list[FamilyCall]) -> None:
        """Let *calls* go on, message by message, beside each other and what each of them has met."""
        everybody = list(dict.fromkeys(self._with_congested(calls)))
        holder = self._in_use.new_holder()
        for call in everybody:
            before = self._congestion_of.pop(call, None)
            if before is not None:
                before.is_replaced = True
            for batch in self._batches.pop(call, []):
                batch.is_void = True
                self._link_bytes -= batch.outcome.link_bytes
                self._in_use.release(call.footprint.links, batch.holder)
                del self._call_of[batch.holder]

        # One holder for all, until none is in flight: links that several of them use are held by the last.
        for call in everybody:
            before_holder, call.holder = call.holder, holder
            self._call_of.pop(before_holder, None)
            for _, places in call.begins:
                self._in_use.hold(call.footprint.links[call.footprint.positions_of(places)], holder)

        everybody.sort(key=lambda call: call.begins[0][0])
        congestion = Congestion(self._env, self._alone, self._finish, everybody)
        self._call_of[holder] = everybody[0]
        self._congestion_of |= dict.fromkeys(everybody, congestion)

    def _settle(self, _: int) -> None:
        """Work out calls of which all ranks of a group have come."""
        calls, self._to_settle = list(self._to_settle), {}
        for call in calls:
            if call in self._congestion_of:
                continue
            complete = call.complete
            waits = call.facts.call.lane is not None or call.facts.call.collective in TOGETHER
            if call.is_half_come and not (waits and (not len(complete) or not call.footprint.groups_meet)):
                self._congest([call])
            elif len(complete):
                self._work_out(call, complete)

    def _work_out(self, call: FamilyCall, groups: Int64Array) -> None:
        places = call.family.places_of_groups(groups)
        starts_ps = call.starts_ps[places]
        since_ps, now_ps = int(starts_ps.min()), int(self._env.now)
        outcome = self._alone.outcome(
            call.family, groups, call.facts, call.footprint, starts_ps - since_ps, call.splits_of(places)
        )
        call.unsettled[groups] = False
        self._link_bytes += outcome.link_bytes

        batch = _Batch(call, places, self._in_use.new_holder(), outcome, since_ps)
        self._batches[call].append(batch)
        self._call_of[batch.holder] = call
        used = np.flatnonzero(outcome.free_from_ps >= 0)
        until_ps = outcome.free_from_ps[used] + since_ps
        self._in_use.hold(call.footprint.links[used], batch.holder, until_ps)
        for end_ps, own in outcome.ends_ps:
            event = self._env.timeout(max(0, since_ps + end_ps - now_ps))
            event.callbacks.append(partial(self._end, batch, own))

    def _end(self, batch: _Batch, places: Int64Array, _: simpy.Event) -> None:
        """Let the ranks at *places* go on, unless their call has met another since."""
        if batch.is_void:
            return
        if places is batch.outcome.ends_ps[-1][1]:
            self._batches[batch.call].remove(batch)
            del self._call_of[batch.holder]
            if not self._batches[batch.call]:
                del self._batches[batch.call]
            batch.call.forget(batch.places)
        self._finish(batch.call, places)

    def _finish(self, call: FamilyCall, places: Int64Array) -> None:
        """Note that the ranks at *places* are through, and tell them."""
        tell = call.finish(places)
        if call.is_over and call in self._key_of:
            del self._calls[self._key_of.pop(call)]
        if self._beside and not call.num_in_flight:
            self._count_overlaps(call)
        congestion = self._congestion_of.get(call)
        if congestion is None and call.is_over:
            self._call_of.pop(call.holder, None)
        elif congestion is not None and not any(other.num_in_flight for other in congestion.calls):
            self._dissolve(congestion)
        for one in tell:
            one()

    def _dissolve(self, congestion: Congestion) -> None:
        """Let calls go on by themselves, none of which is in flight now."""
        self._link_bytes += congestion.link_bytes
        del self._call_of[congestion.calls[0].holder]
        for call in congestion.calls:
            self._in_use.release(call.footprint.links, call.holder)
            del self._congestion_of[call]
            call.begins.clear()
            call.holder = self._in_use.new_holder()
            if not call.is_over:
                self._call_of[call.holder] = call


def _num_messages(call: FamilyCall) -> int:
    return call.footprint.num_messages * call.num_groups_begun


def _kind(call: FamilyCall) -> str:
    return f"{call.facts.call.collective} of {call.family.group_size} ranks"
