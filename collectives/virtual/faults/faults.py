"""Faults of a virtual cluster: conditions that are no matter of its network, sorted, and put into a run.

run("train.py", ranks=8, conditions=[DeadRank(3, iteration=5), MessageDelay("50us", seed=1)])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from collectives.virtual.computation.operations import tensors_in
from collectives.virtual.faults.kinds import (
    AbortedGroup,
    ClockJump,
    CrossedGroups,
    DeadRank,
    FailingCode,
    MessageDelay,
    RankFault,
    SlowStore,
    VirtualCondition,
)
from collectives.virtual.iterations import Iterations
from sim.cluster import Cluster, RankThread, Surroundings
from sim.errors import ConditionError
from sim.scenario.conditions import Condition, Jitter, Straggler
from sim.topology import Topology
from sim.topology.placement import check_place
from sim.units import SECOND


class Delays:
    """Draws the delays of messages."""

    def __init__(self, delay: MessageDelay) -> None:
        self._delay = delay
        self._generators: dict[tuple[int, int], np.random.Generator] = {}

    def next_ps(self, source: int, destination: int) -> int:
        """Return the delay of the next message from *source* to *destination*, in picoseconds."""
        pair = source, destination
        if pair not in self._generators:
            self._generators[pair] = np.random.Generator(np.random.SFC64([self._delay.seed, *pair]))
        return int(self._generators[pair].random() * (2 * self._delay.mean_ps))


@dataclass(frozen=True)
class Faults:
    """The faults of one run; make them by `of`, which checks them.

    Attributes:
        conditions: those of the network and of slow ranks.
        deaths: ranks that die.
        delay: of messages, if any.
        slow_store: of the store, if it is slow.
        of_ranks: what happens to ranks when they have finished so many iterations.
    """

    conditions: tuple[Condition, ...]
    deaths: tuple[DeadRank, ...]
    delay: MessageDelay | None
    slow_store: SlowStore | None = None
    of_ranks: tuple[RankFault, ...] = ()

    @property
    def are_calm(self) -> bool:
        """Whether no link changes, no message is late, no rank dies and nothing else happens to one."""
        return (
            not self.deaths
            and self.delay is None
            and all(isinstance(fault, ClockJump) for fault in self.of_ranks)
            and all(isinstance(condition, Jitter | Straggler) for condition in self.conditions)
        )

    @classmethod
    def of(cls, conditions: Sequence[VirtualCondition], topology: Topology) -> Faults:
        """Return *conditions*, sorted by kind.

        Raises:
            ConditionError: a rank that *topology* has not, or more than one where only one can be.
        """
        deaths = tuple(one for one in conditions if isinstance(one, DeadRank))
        for death in deaths:
            check_place(death.rank, topology, str(death), ConditionError)
        ranks = [death.rank for death in deaths]
        twice = next((rank for rank in ranks if ranks.count(rank) > 1), None)
        if twice is not None:
            raise ConditionError(
                f"conditions: {ranks.count(twice)} for DeadRank(rank={twice}); a rank dies once"
            )
        delays = [one for one in conditions if isinstance(one, MessageDelay)]
        stores = [one for one in conditions if isinstance(one, SlowStore)]
        for found, name in ((delays, "MessageDelay"), (stores, "SlowStore")):
            if len(found) > 1:
                raise ConditionError(f"conditions: {len(found)} for {name}; give one")
        of_ranks = tuple(one for one in conditions if isinstance(one, RankFault))
        for fault in of_ranks:
            check_place(fault.rank, topology, str(fault), ConditionError)
        own = DeadRank | MessageDelay | SlowStore | RankFault
        rest = tuple(one for one in conditions if not isinstance(one, own))
        return cls(rest, deaths, delays[0] if delays else None, stores[0] if stores else None, of_ranks)

    @property
    def delay_ps(self) -> Callable[[int, int], int] | None:
        """What draws the delay of the next message between two ranks, anew for every run."""
        return None if self.delay is None else Delays(self.delay).next_ps

    @property
    def store_delay_ps(self) -> Callable[[int], int] | None:
        """What draws how long the next call of the store takes on a rank, anew for every run."""
        slow = self.slow_store
        if slow is None:
            return None
        delays = Delays(MessageDelay(slow.mean, slow.seed))
        return lambda rank: delays.next_ps(rank, rank)

    def prepare(self, cluster: Cluster, iterations: Iterations) -> None:
        """Let the ranks of *cluster* die when they are to."""
        cluster.deaths_ps = {death.rank: death.at_ps for death in self.deaths if death.at_ps is not None}
        last = {death.rank: death.iteration for death in self.deaths if death.iteration}

        def end(rank_thread: RankThread, finished: int) -> None:
            if last.get(rank_thread.rank) == finished:
                rank_thread.die()

        iterations.on_end(end)
        if self.of_ranks:
            cluster.shared[RankFaults] = RankFaults(self.of_ranks).attached(cluster, iterations)


class InjectedError(RuntimeError):
    """What an `FailingCode` raises."""


class RankFaults:
    """The faults of the ranks of one run.

    Attributes:
        clock_jumps_ps: by rank, how much later its clock tells the time than it is.
    """

    def __init__(self, faults: Sequence[RankFault]) -> None:
        self._faults = tuple(faults)
        self.clock_jumps_ps: dict[int, int] = {}

    @staticmethod
    def clock_jump_ps(cluster: Surroundings, rank: int) -> int:
        """Return how much later the clock of *rank* tells the time than it is."""
        faults = cluster.shared.get(RankFaults)
        return 0 if faults is None else int(faults.clock_jumps_ps.get(rank, 0))

    def attached(self, cluster: Cluster, iterations: Iterations) -> RankFaults:
        """Let the faults happen in a run on *cluster*; return this."""

        def ended(rank_thread: RankThread, finished: int) -> None:
            for fault in self._faults:
                if fault.iteration == finished:
                    self._happen(fault, rank_thread.rank, cluster.topology.num_ranks)

        iterations.on_end(ended)
        return self

    def _happen(self, fault: RankFault, rank: int, num_ranks: int) -> None:
        if isinstance(fault, CrossedGroups):
            _cross_groups(rank == fault.rank, num_ranks)
        elif fault.rank == rank:
            match fault:
                case FailingCode(where="rank"):
                    raise InjectedError(str(fault))
                case FailingCode():
                    _raise_in_next_backward(fault)
                case AbortedGroup():
                    dist.distributed_c10d._abort_process_group()
                case ClockJump(by=by):
                    self.clock_jumps_ps[rank] = self.clock_jumps_ps.get(rank, 0) + round(by * SECOND)


def _cross_groups(is_crossed: bool, num_ranks: int) -> None:
    """Make two groups of all ranks, and reduce in each; a rank that is crossed, the second one first."""
    if not dist.is_initialized():
        return
    sizes = (2, 1) if is_crossed else (1, 2)
    groups = {size: dist.new_group(list(range(num_ranks))) for size in sizes}
    for size in sizes:
        dist.all_reduce(torch.zeros(size), group=groups[size])


def _raise_in_next_backward(fault: FailingCode) -> None:
    """Raise when the next backward pass on this thread begins to send gradients back."""
    removed: list[Any] = []

    def raises(module: Any, *_: Any) -> None:
        for hook in removed:
            hook.remove()
        raise InjectedError(str(fault))

    def called(module: torch.nn.Module, args: Any, output: Any) -> None:
        tensors = [own for own in tensors_in(output) if own.requires_grad]
        if tensors and Cluster.current() is mine:
            handle.remove()
            removed.append(tensors[0].register_hook(raises))

    mine = Cluster.current()
    handle = torch.nn.modules.module.register_module_forward_hook(called)
