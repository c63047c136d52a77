"""Faults of a virtual cluster: conditions that are no matter of its network, sorted, and put into a run.

run("train.py", ranks=8, conditions=[DeadRank(3, iteration=5), MessageDelay("50us", seed=1)])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from collectives.virtual.faults.kinds import (
    ClockJump,
    DeadRank,
    MessageDelay,
    RankFault,
    SlowStore,
    VirtualCondition,
)
from collectives.virtual.faults.rank_faults import RankFaults
from collectives.virtual.iterations import Iterations
from sim.cluster import Cluster, RankThread
from sim.errors import ConditionError
from sim.scenario.conditions import Condition, Jitter, Straggler
from sim.topology import Topology
from sim.topology.placement import check_place


class Delays:
    """Draws the delays of messages.

    Args:
        delay: their distribution.
    """

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
