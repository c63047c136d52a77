"""Process groups between rank threads, and what the threads of one virtual run share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import simpy
import torch
from torch._C._distributed_c10d import Store

from collectives.catalogue.selectors import Choice
from collectives.communicators.communicator import Communicator
from collectives.communicators.programs import ProgramLauncher
from collectives.models.cost import selector_on
from collectives.simulation.engines.meeting_point import MeetingPoint
from collectives.virtual.batched_execution import BatchedExecutions
from collectives.virtual.transport import SimulatedTransport
from sim.cluster import RankThread, Surroundings
from sim.scenario.rank_overhead import RankOverhead
from sim.trace import Trace


@dataclass
class VirtualWorld:
    """What the ranks of one virtual run share: where they meet.

    Attributes:
        algorithm: of all-reduce, for groups that choose none.
        meeting_points: that of each communicator of each group.
        batched: what each of them carries out for all its ranks at once.
        created: how often each rank has made the group or communicator of a name.
        values: the contents of the rank threads' stores.
        awaited: the events that fire when a key of the stores is set.
        trace: where every collective is recorded, if anywhere.
        stores: the store of each rank; torch keeps only the half of it that is in C++.
        delay_ps: how late the next message between two ranks sets out, if messages are late.
        is_calm: no link changes, no message is late and no rank dies.
    """

    algorithm: Choice
    meeting_points: dict[Hashable, MeetingPoint] = field(default_factory=dict)
    batched: dict[Hashable, BatchedExecutions] = field(default_factory=dict)
    created: Counter[Hashable] = field(default_factory=Counter)
    values: dict[str, bytes] = field(default_factory=dict)
    awaited: dict[str, simpy.Event] = field(default_factory=dict)
    trace: Trace | None = None
    stores: dict[int, VirtualStore] = field(default_factory=dict)
    delay_ps: Callable[[int, int], int] | None = None
    is_calm: bool = False

    @staticmethod
    def of(cluster: Surroundings) -> VirtualWorld:
        """Return the world of *cluster*, in which `collectives.virtual.run` put it."""
        world: VirtualWorld = cluster.shared[VirtualWorld]
        return world

    def count(self, key: Hashable) -> int:
        """Return how often *key* has been counted before; so ranks number what they make alike."""
        self.created[key] += 1
        return self.created[key] - 1


class RankThreads:
    """The members of a process group are threads of a cluster: `collectives.torch_backend.members.Members`.

    Args:
        rank_thread: this rank.
        options: as torch gives them to the creator of a backend.
        algorithm: the group's own choice; None means the run's.
    """

    def __init__(self, rank_thread: RankThread, options: Any, algorithm: Choice | None) -> None:
        self.rank_thread = rank_thread
        self.rank = options.group_rank
        self.hosts = tuple(options.global_ranks_in_group) or tuple(range(options.group_size))
        self.world = VirtualWorld.of(rank_thread.cluster)
        self.algorithm = algorithm or self.world.algorithm
        name = options.group_id
        self.key = (name, self.hosts, self.world.count((name, self.hosts, rank_thread.rank)))

    def connect(self, algorithm: Choice | None, device: torch.device, timeout: float | None) -> Communicator:
        """Return a new communicator over the simulated network; its time-out is the deadlock."""
        key = (self.key, self.world.count((self.key, self.rank)))
        if key not in self.world.meeting_points:
            cluster = self.rank_thread.cluster
            rank_overhead = cluster.scenario.rank_overhead(RankOverhead(), self.hosts)
            delay_ps = self.world.delay_ps
            meeting_point = MeetingPoint(cluster.network, self.hosts, rank_overhead, delay_ps)
            meeting_point.is_calm = self.world.is_calm
            self.world.meeting_points[key] = meeting_point
            self.world.batched[key] = BatchedExecutions(meeting_point)
        meeting_point = self.world.meeting_points[key]
        transport = SimulatedTransport(meeting_point, self.rank, self.rank_thread, self.world.trace)
        topology = self.rank_thread.cluster.topology
        selector = selector_on(topology, algorithm or self.algorithm, self.hosts)
        return Communicator(ProgramLauncher(transport, selector, device, self.world.batched[key].carry_out))

    def shutdown(self) -> None:
        """Do nothing: a cluster gives back everything at its end."""


class VirtualStore(Store):
    """The key-value store of the rank threads; waiting for a key is waiting in virtual time.

    It stands for the rendezvous of a launcher: only waiting takes time, messages to it do not.
    """

    def __init__(self, rank_thread: RankThread) -> None:
        super().__init__()
        self._rank_thread = rank_thread
        self._world = VirtualWorld.of(rank_thread.cluster)

    @staticmethod
    def of(rank_thread: RankThread) -> VirtualStore:
        """Return the store of this rank; it has one."""
        stores = VirtualWorld.of(rank_thread.cluster).stores
        if rank_thread.rank not in stores:
            stores[rank_thread.rank] = VirtualStore(rank_thread)
        return stores[rank_thread.rank]

    def set(self, key: str, value: str | bytes) -> None:
        """Set *key*, and wake whoever waits for it."""
        self._catch_up()
        self._world.values[key] = value.encode() if isinstance(value, str) else bytes(value)
        if key in self._world.awaited:
            self._world.awaited.pop(key).succeed()

    def get(self, key: str) -> bytes:
        """Return the value of *key*, once it has one."""
        self.wait([key])
        return self._world.values[key]

    def add(self, key: str, value: int) -> int:
        """Add to the number under *key*, from 0, and return the sum."""
        self._catch_up()
        total = int(self._world.values.get(key, b"0")) + value
        self.set(key, str(total))
        return total

    def check(self, keys: list[str]) -> bool:
        """Return whether all *keys* are set."""
        self._catch_up()
        return all(key in self._world.values for key in keys)

    def wait(self, keys: list[str], timeout: Any = None) -> None:
        """Return when all *keys* are set."""
        self._catch_up()
        for key in keys:
            while key not in self._world.values:
                event = self._world.awaited.setdefault(key, self._rank_thread.cluster.env.event())
                self._rank_thread.wait(event, partial("key {!r} of the store".format, key))

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        """Set *key* to *desired* if it holds *expected*, or is not set and that is empty."""
        expected = expected.encode() if isinstance(expected, str) else bytes(expected)
        self._catch_up()
        current = self._world.values.get(key)
        if current == expected or (current is None and not expected):
            self.set(key, desired)
        return self._world.values.get(key, expected)

    def delete_key(self, key: str) -> bool:
        """Remove *key*; return whether it was set."""
        self._catch_up()
        return self._world.values.pop(key, None) is not None

    def num_keys(self) -> int:
        """Return how many keys are set."""
        self._catch_up()
        return len(self._world.values)

    def clone(self) -> VirtualStore:
        """Return this store; it has no connection of its own."""
        return self

    def _catch_up(self) -> None:
        """Let all that happens earlier happen first, so that keys appear in the order of time."""
        self._rank_thread.poll(self._rank_thread.cluster.env.event())
