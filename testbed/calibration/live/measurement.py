"""Measurement of a network, or of shared memory, by the ranks of a Gloo group, pattern by pattern.

All ranks begin at one agreed moment.  What counts is the time from when the last of them has begun until the
last is done.  Ranks of one machine share its clock; of other machines' clocks the difference is estimated
from the quickest of several round trips, and is wrong by at most half of that.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import torch
import torch.distributed as dist

from testbed.benchmarking.payload import Payload, num_parts
from testbed.calibration.live import plan
from testbed.output.table import Advance, silent

LARGEST = 1 << 26
"""Bytes of the largest buffer."""
MOST_REPETITIONS, LEAST_REPETITIONS = 30, 4
_LEAD_SECONDS = 2e-3
_ROUND_TRIPS = 20
_PROBED = 1 << 18
"""Bytes of the buffer by which the sizes are chosen, and by which racks are found."""

Call: TypeAlias = Callable[[], None]


@dataclass(frozen=True)
class Measured:
    """What `measure` has found: a row for each pattern, the wiring, and the seconds that it took."""

    rows: tuple[plan.Row, ...]
    wiring: plan.Wiring
    seconds: float


def measure(
    group: dist.ProcessGroup | None = None,
    *,
    seconds: float = 60.0,
    ranks_per_node: int = 1,
    transport: str | None = None,
    advance: Advance = silent,
) -> Measured:
    """Measure the network between the ranks of *group*; all of them call this, and get the same.

    Args:
        group: of Gloo, of at least two ranks; by default all.
        seconds: that it may take, about.
        ranks_per_node: consecutive ranks that share a node.
        transport: ``shm`` to measure the memory that they share; by default what the group has.
        advance: is told what comes next, and how many percent are done.

    Raises:
        RuntimeError: an element came out wrong, or a rank failed.
    """
    began = time.monotonic()
    in_memory = transport == "shm"
    meter = Meter(group, transport=transport)
    wiring, found = (
        (plan.Wiring(meter.num_ranks, meter.num_ranks, in_memory=True), [])
        if in_memory
        else _wiring(meter, ranks_per_node)
    )
    rate = _PROBED / meter.time(plan.pattern_of("broadcast", not in_memory, _PROBED, (0, 1)), 0.5).median
    num_patterns = len(list(plan.patterns_of(wiring, LARGEST)))
    largest = _power_of_two(rate * seconds / num_patterns / LEAST_REPETITIONS)

    patterns, rows = list(plan.patterns_of(wiring, largest)), list(found)
    for number, pattern in enumerate(patterns):
        advance(str(pattern), round(100 * number / len(patterns)))
        left = meter.agreed(began + seconds - time.monotonic())
        rows.append(meter.time(pattern, left / (len(patterns) - number)))
    return Measured(tuple(rows), wiring, meter.agreed(time.monotonic() - began))


def _wiring(meter: Meter, ranks_per_node: int) -> tuple[plan.Wiring, list[plan.Row]]:
    """Return who shares what, and what was measured to find out."""
    if ranks_per_node > 1 or meter.num_ranks < 4:
        return plan.Wiring(meter.num_ranks, ranks_per_node), []
    tried = [own for pairs in plan.blocks(meter.num_ranks).values() for own in plan.exchanges(pairs, _PROBED)]
    rows = [meter.time(pattern, 0.5, LEAST_REPETITIONS) for pattern in dict.fromkeys(tried)]
    rack = plan.rack_of(meter.num_ranks, {row.pattern: row.median for row in rows})
    return plan.Wiring(meter.num_ranks, 1, rack), rows


def _power_of_two(nbytes: float) -> int:
    return 1 << max(16, min(LARGEST.bit_length() - 1, math.floor(math.log2(max(nbytes, 1)))))


class Meter:
    """Times collectives of some ranks of a group, all of which begin together.

    Args:
        group: of Gloo; every method is called by all its ranks.
        timeout: seconds that a collective may take.
        transport: by which our programs go; by default that of the group.
    """

    def __init__(
        self, group: dist.ProcessGroup | None = None, timeout: float = 60.0, transport: str | None = None
    ) -> None:
        whole = group or dist.group.WORLD
        if whole is None:
            raise RuntimeError("torch.distributed is not initialised")
        self.group = whole
        self.rank = whole.rank()
        self.num_ranks = whole.size()
        self.timeout = timeout
        self.transport = transport
        self._ahead = _seconds_ahead(whole)
        self._groups: dict[tuple[int, ...], Any] = {tuple(range(self.num_ranks)): whole}
        self._communicators: dict[tuple[tuple[int, ...], str, str], Any] = {}

    def time(self, pattern: plan.Pattern, seconds: float, repetitions: int = MOST_REPETITIONS) -> plan.Row:
        """Return how long *pattern* takes, as often as fits into about so many *seconds*.

        Raises:
            RuntimeError: an element came out wrong.
        """
        until = self.agreed(time.monotonic() + seconds)
        calls = self._prepared(pattern)
        taken: list[float] = []
        while len(taken) < repetitions:
            taken.append(self._once(calls))
            if len(taken) >= LEAST_REPETITIONS and self.agreed(time.monotonic()) > until:
                break
        return plan.Row(pattern, tuple(taken))

    def agreed(self, value: float) -> float:
        """Return the *value* of rank 0."""
        told = torch.tensor([value], dtype=torch.float64)
        dist.broadcast(told, group_src=0, group=self.group)
        return float(told)

    def _prepared(self, pattern: plan.Pattern) -> tuple[Call, Call] | None:
        """Return what this rank does first and what is timed, if it takes part; numbers were checked."""
        groups = {members: self._group(members) for members in pattern.groups}
        members = next((own for own in groups if self.rank in own), None)
        payload, wrong = None, 0
        if members is not None:
            communicator = self._communicator(groups[members], members, pattern)
            count = pattern.nbytes // plan.ITEM_SIZE // num_parts(pattern.collective, len(members))
            place: Any = {"rank": members.index(self.rank), "world_size": len(members)}
            payload = Payload(pattern.collective, count, torch.float32, **place)
            wrong = payload.count_wrong(communicator)
            payload.clear()

        total = torch.tensor([wrong])
        dist.all_reduce(total, group=self.group)
        if int(total):
            raise RuntimeError(f"{pattern}: {int(total)} elements came out wrong")
        if payload is None or members is None:
            return None
        call = partial(payload.call, communicator)
        return (_nothing if self.transport is None else self._in_turn(members, call)), call

    def _in_turn(self, members: tuple[int, ...], call: Call) -> Call:
        """Return what ranks do before *call* through memory, so that it finds them as one of many calls does.

        They have just made it, and begin together: they have found each other once more.  After a pause it
        takes three times as long, as nothing is in a processor's caches any more.
        """
        together = plan.pattern_of("all_reduce", False, plan.ITEM_SIZE, members)
        communicator = self._communicator(self._group(members), members, together)
        one = torch.zeros(1)

        def ready() -> None:
            call()
            communicator.all_reduce(one)

        return ready

    def _group(self, members: tuple[int, ...]) -> Any:
        if members not in self._groups:
            ranks = dist.get_process_group_ranks(self.group)
            self._groups[members] = dist.new_group([ranks[own] for own in members])
        return self._groups[members]

    def _communicator(self, group: Any, members: tuple[int, ...], pattern: plan.Pattern) -> Any:
        from collectives.communicators.connection import connect

        key = members, pattern.collective, pattern.algorithm
        if key not in self._communicators:
            choice: Any = plan.NATIVE if pattern.is_native else {pattern.collective: pattern.algorithm}
            self._communicators[key] = connect(group, choice, timeout=self.timeout, transport=self.transport)
        return self._communicators[key]

    def _once(self, calls: tuple[Call, Call] | None) -> float:
        """Return the seconds from when the last rank has begun until the last is done."""
        moment = self.agreed(time.monotonic() + self._ahead + _LEAD_SECONDS) - self._ahead
        time.sleep(max(0.0, moment - time.monotonic()))
        times = torch.zeros(2, dtype=torch.float64)
        if calls is not None:
            ready, call = calls
            ready()
            begun = time.monotonic()
            call()
            ended = time.monotonic()
            times = torch.tensor([begun + self._ahead, ended + self._ahead], dtype=torch.float64)
        dist.all_reduce(times, dist.ReduceOp.MAX, group=self.group)
        return float(times[1] - times[0])


def _nothing() -> None:
    """Do nothing."""


def _seconds_ahead(group: dist.ProcessGroup) -> float:
    """Return by how much the clock of rank 0 is ahead of this rank's; 0 on the same machine.

    Source: Cristian, "Probabilistic clock synchronization", Distributed Computing 3, 1989.
    """
    machine = Path("/proc/sys/kernel/random/boot_id")
    own = machine.read_text() if machine.exists() else str(group.rank())
    machines: list[Any] = [None] * group.size()
    dist.all_gather_object(machines, own, group)
    ahead = 0.0
    for rank in range(1, group.size()):
        if machines[rank] != machines[0] and group.rank() in (0, rank):
            found = _ahead_of(group, rank)
            ahead = found if group.rank() == rank else ahead
    return ahead


def _ahead_of(group: dist.ProcessGroup, rank: int) -> float:
    """Return, on *rank*, by how much the clock of rank 0 is ahead; on rank 0 answer it."""
    best = math.inf, 0.0
    for _ in range(_ROUND_TRIPS):
        told = torch.zeros(1, dtype=torch.float64)
        if group.rank() == 0:
            group.recv([told], rank, 0).wait()
            told[0] = time.monotonic()
            group.send([told], rank, 0).wait()
            continue
        asked = time.monotonic()
        group.send([told], 0, 0).wait()
        group.recv([told], 0, 0).wait()
        answered = time.monotonic()
        best = min(best, (answered - asked, float(told) - (asked + answered) / 2))
    return best[1]
