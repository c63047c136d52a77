"""World of one virtual run: what its ranks share, and by which programs their collectives went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import simpy
from torch._C._distributed_c10d import Store

from collectives.catalogue.selectors import Choice, Selector
from collectives.execution.transport_model import IDEAL, TransportModel
from collectives.program import Algorithm
from collectives.timing.ranks.meeting_point import MeetingPoint
from collectives.virtual.batched_execution import BatchedExecutions
from collectives.virtual.folding.classes import Classes
from collectives.virtual.folding.partitions import Partitions
from collectives.virtual.group_calls.calls import GroupCalls
from collectives.virtual.library_calls import LibraryCalls
from collectives.virtual.progress import RankProgress
from collectives.virtual.time_outs import TimeOut
from sim.cluster.surroundings import OfCluster
from sim.scenario.rank_overhead import RankOverhead
from sim.trace import Trace


@dataclass
class Carried:
    """Collectives of one kind that went by one program.

    Attributes:
        collective: what was carried out.
        hosts: the place of each rank of the group, or of the first such group.
        algorithm: the program.
        smallest_bytes: of the buffers, as nccl-tests counts them.
        largest_bytes: of the buffers.
    """

    collective: str
    hosts: tuple[int, ...]
    algorithm: Algorithm
    smallest_bytes: int
    largest_bytes: int

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return {
            "collective": self.collective,
            "ranks": len(self.hosts),
            "algorithm": str(self.algorithm),
            "smallest_bytes": self.smallest_bytes,
            "largest_bytes": self.largest_bytes,
        }


@dataclass
class Noted:
    """A selector that notes what it has chosen; `Selector`.

    Attributes:
        selector: that chooses.
        hosts: the place of each rank of the group.
        noted: where, by collective, number of ranks and program.
    """

    selector: Selector
    hosts: tuple[int, ...]
    noted: dict[tuple[str, int, str], Carried]
    _seen: set[tuple[str, int]] = field(default_factory=set)

    def select(self, collective: str, nbytes: int) -> Algorithm | None:
        """Return what the selector chooses for *nbytes* bytes."""
        algorithm = self.selector.select(collective, nbytes)
        if algorithm is not None and (collective, nbytes) not in self._seen:
            self._seen.add((collective, nbytes))
            key = collective, len(self.hosts), str(algorithm)
            own = self.noted.setdefault(key, Carried(collective, self.hosts, algorithm, nbytes, nbytes))
            own.smallest_bytes = min(own.smallest_bytes, nbytes)
            own.largest_bytes = max(own.largest_bytes, nbytes)
        return algorithm


@dataclass
class VirtualWorld(OfCluster):
    """What the ranks of one virtual run share: where they meet.

    Attributes:
        algorithm: of all-reduce, for groups that choose none.
        meeting_points: that of each communicator of each group.
        batched: what each of them carries out for all its ranks at once.
        time_outs: of the groups, how late a rank may come to a call.
        created: how often each rank has made the group or communicator of a name.
        values: the contents of the rank threads' stores.
        values_since_ps: when each key of them was set first.
        awaited: the events that fire when a key of the stores is set.
        trace: where every collective is recorded, if anywhere.
        stores: the store of each rank; torch keeps only the half of it that is in C++.
        delay_ps: how late the next message between two ranks sets out, if messages are late.
        store_delay_ps: how long the next call of the store takes on a rank, if the store is slow.
        is_calm: no link changes, no message is late and no rank dies.
        is_lenient: calls that the backend a script names refuses, or gets wrong, are carried out by value.
        transport_model: how ranks complete the steps of collectives.
        rank_overhead: what ranks add to the time of the network, where no condition holds.
        progress: what each rank has in flight, where that goes on when the rank calls.
        group_names: the names by which ranks know a group on streams, by its hosts and ordinal.
        classes: ranks that do the same, for which one thread speaks.
        carried: by which programs collectives have gone.
        library: what calls of the vendor's library come to; None: programs stand for them as they are.
        slowest: how many times as long as its device says a rank on a GPU computes, as the slowest of all.
        on_devices: which rank takes part in calls of NCCL from each device of a node, by the group's key.
        group_calls: the calls of ranks on a GPU, timed by sizes alone.
    """

    algorithm: Choice
    meeting_points: dict[Hashable, MeetingPoint] = field(default_factory=dict)
    batched: dict[Hashable, BatchedExecutions] = field(default_factory=dict)
    time_outs: dict[Hashable, TimeOut] = field(default_factory=dict)
    created: Counter[Hashable] = field(default_factory=Counter)
    values: dict[str, bytes] = field(default_factory=dict)
    values_since_ps: dict[str, int] = field(default_factory=dict)
    awaited: dict[str, simpy.Event] = field(default_factory=dict)
    trace: Trace | None = None
    stores: dict[int, Store] = field(default_factory=dict)
    delay_ps: Callable[[int, int], int] | None = None
    store_delay_ps: Callable[[int], int] | None = None
    is_calm: bool = False
    is_lenient: bool = False
    transport_model: TransportModel = IDEAL
    rank_overhead: RankOverhead = field(default_factory=RankOverhead)
    progress: dict[int, RankProgress] = field(default_factory=dict)
    group_names: dict[Hashable, list[str]] = field(default_factory=dict)
    classes: Classes = field(default_factory=Classes)
    carried: dict[tuple[str, int, str], Carried] = field(default_factory=dict)
    library: LibraryCalls | None = None
    slowest: Fraction = Fraction(1)
    on_devices: dict[Hashable, int] = field(default_factory=dict)
    group_calls: GroupCalls = field(init=False)

    @property
    def partitions(self) -> Partitions:
        """Which process groups were made together."""
        return self.classes.partitions

    def count(self, key: Hashable) -> int:
        """Return how often *key* has been counted before; so ranks number what they make alike."""
        self.created[key] += 1
        return self.created[key] - 1
