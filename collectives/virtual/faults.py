"""Faults of a virtual cluster that are no matter of its network: ranks that die, messages that are late.

    run("train.py", ranks=8, conditions=[DeadRank(3, iteration=5), MessageDelay("50us", seed=1)])

They are given together with the conditions of `sim.scenario.conditions`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from collectives.virtual.iterations import Iterations
from sim.cluster import Cluster, RankThread
from sim.errors import ConditionError
from sim.scenario.conditions import Condition, Jitter, Straggler
from sim.topology import Topology
from sim.topology.placement import check_place
from sim.units import Quantity, parse_time


@dataclass(frozen=True)
class DeadRank:
    """A rank that ends without a word, as a process that is killed.

    It posts nothing more, and what it had posted that no peer has met is gone; messages under way arrive.

    Attributes:
        rank: its place.
        iteration: it dies when it has finished so many iterations, that is steps of its optimizer; 0: before
            its first line.
        at: the time at which it dies, ``"10ms"`` or seconds; instead of *iteration*.
    """

    rank: int
    iteration: int | None = None
    at: Quantity | None = None
    at_ps: int | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if (self.iteration is None) == (self.at is None):
            raise ConditionError(f"{self}: expected an iteration or a time at which it dies, one of them")
        if self.iteration is not None and (not isinstance(self.iteration, int) or self.iteration < 0):
            raise ConditionError(f"{self}: iteration: expected a number from 0, got {self.iteration!r}")
        at_ps = None if self.at is None else parse_time(self.at, "time of a rank's death")
        object.__setattr__(self, "at_ps", 0 if self.iteration == 0 else at_ps)


@dataclass(frozen=True)
class MessageDelay:
    """Every message sets out late by a random time, uniform from 0 to twice the mean.

    Messages are those of all collectives and of send and recv. The delays of those from one rank to another
    come from the seed and the two ranks alone, so a run repeats exactly. They change times, never results.

    Attributes:
        mean: of the delay, ``"50us"`` or seconds.
        seed: of the generators.
    """

    mean: Quantity
    seed: int = 0
    mean_ps: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean_ps", parse_time(self.mean, "delay of messages"))
        if self.seed < 0:
            raise ConditionError(f"{self}: seed: expected a number from 0, got {self.seed}")


VirtualCondition: TypeAlias = Condition | DeadRank | MessageDelay
"""Condition of a virtual cluster: one of its network and ranks, or a fault."""


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
    """

    conditions: tuple[Condition, ...]
    deaths: tuple[DeadRank, ...]
    delay: MessageDelay | None

    @property
    def are_calm(self) -> bool:
        """Whether no link changes, no message is late and no rank dies."""
        return (
            not self.deaths
            and self.delay is None
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
        if len(delays) > 1:
            raise ConditionError(f"conditions: {len(delays)} for MessageDelay; give one")
        rest = tuple(one for one in conditions if not isinstance(one, DeadRank | MessageDelay))
        return cls(rest, deaths, delays[0] if delays else None)

    @property
    def delay_ps(self) -> Callable[[int, int], int] | None:
        """What draws the delay of the next message between two ranks, anew for every run."""
        return None if self.delay is None else Delays(self.delay).next_ps

    def prepare(self, cluster: Cluster, iterations: Iterations) -> None:
        """Let the ranks of *cluster* die when they are to."""
        cluster.deaths_ps = {death.rank: death.at_ps for death in self.deaths if death.at_ps is not None}
        last = {death.rank: death.iteration for death in self.deaths if death.iteration}

        def end(rank_thread: RankThread, finished: int) -> None:
            if last.get(rank_thread.rank) == finished:
                rank_thread.die()

        iterations.on_end(end)
