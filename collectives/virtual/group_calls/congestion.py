"""Congestion: calls that meet on links, their messages under way side by side on a network of their own.

Links that no other call holds do not matter to them, so their network has a time of its own that follows the
run's.  It begins where the first of them began: what they have done until they met is repeated, which
gives the same times, as nobody met anybody then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from math import inf
from typing import TypeAlias

import numpy as np
import simpy

from collectives.timing.queues import Execution
from collectives.virtual.group_calls.alone import CallsAlone
from collectives.virtual.group_calls.family_call import FamilyCall
from sim.network.schedule import LAST, Settling
from sim.units import Int64Array

Finished: TypeAlias = Callable[[FamilyCall, Int64Array], None]
"""Called with the places of a call that are through now."""


class Congestion:
    """Calls that meet each other, from the first of them on until none is in flight.

    Attributes:
        calls: those that met here, in flight or over.
        is_replaced: whether another one has taken them over.
    """

    def __init__(
        self, env: simpy.Environment, alone: CallsAlone, finished: Finished, calls: Iterable[FamilyCall]
    ) -> None:
        self.calls = list(calls)
        self.is_replaced = False
        self._env = env
        self._alone = alone
        self._finished = finished
        self._since_ps = min(call.begins[0][0] for call in self.calls)
        self._own_env = simpy.Environment(initial_time=0)
        self._network = alone.scenario.network(self._own_env)
        self._executions: dict[tuple[int, int], Execution] = {}
        self._ticks = Settling(env, LAST, self._tick)
        for call in self.calls:
            for begin_ps, places in call.begins:
                self._begin_at(begin_ps, call, places)
        self._repeat()

    @property
    def link_bytes(self) -> Int64Array:
        """What has crossed each link, or is under way."""
        return self._network.link_bytes

    def begin(self, call: FamilyCall, places: Int64Array) -> None:
        """Let the ranks at *places* come to *call* now."""
        if call not in self.calls:
            self.calls.append(call)
        now_ps = int(self._env.now)
        self._begin_at(now_ps, call, places)
        self._ticks.at(now_ps)

    def _begin_at(self, begin_ps: int, call: FamilyCall, places: Int64Array) -> None:
        delay_ps = begin_ps - self._since_ps - int(self._own_env.now)
        self._own_env.timeout(delay_ps).callbacks.append(lambda _: self._come(call, places))

    def _come(self, call: FamilyCall, places: Int64Array) -> None:
        size = call.family.group_size
        group_of = places // size
        for group in np.unique(group_of).tolist():
            self._execution(call, group).begin(np.sort(places[group_of == group]) - group * size)

    def _execution(self, call: FamilyCall, group: int) -> Execution:
        key = id(call), group
        if key not in self._executions:
            size = call.family.group_size
            own = slice(group * size, (group + 1) * size)
            self._executions[key] = self._alone.execution(
                self._network,
                call.family.members[own],
                call.facts,
                partial(self._finish, call, own.start),
                lambda rank: call.splits_at(own.start + rank),
            )
        return self._executions[key]

    def _finish(self, call: FamilyCall, first: int, ranks: Int64Array) -> None:
        if not self.is_replaced:
            self._finished(call, first + ranks)

    def _repeat(self) -> None:
        """Let happen what has happened before now."""
        until_ps = int(self._env.now) - self._since_ps
        while self._own_env.peek() < until_ps:
            self._own_env.step()
        self._await_next()

    def _tick(self, now_ps: int) -> None:
        """Let happen what happens now."""
        while not self.is_replaced and self._own_env.peek() <= now_ps - self._since_ps:
            self._own_env.step()
        self._await_next()

    def _await_next(self) -> None:
        following = self._own_env.peek()
        if following != inf and not self.is_replaced:
            self._ticks.at(self._since_ps + int(following))
