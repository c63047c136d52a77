"""Surroundings of a rank: what it shares with the other ranks of its cluster."""

from __future__ import annotations

from typing import Any, Protocol, Self

import simpy

from sim.cluster.order import Choices
from sim.network import Network
from sim.scenario import Scenario
from sim.topology import Topology
from sim.trace import Trace


class Surroundings(Protocol):
    """What the ranks of a cluster share, as one of them sees it.

    Attributes:
        topology: the network's shape.
        env: the SimPy environment; its time is in integer picoseconds.
        network: carries the messages between ranks.
        trace: where computations are recorded, if anywhere.
        scenario: the topology under the conditions that hold.
        shared: what code of different ranks shares, by keys of its own.
        choices: of what nothing in time puts in order; None: the least rank is first.
    """

    topology: Topology
    env: simpy.Environment
    network: Network
    trace: Trace | None
    scenario: Scenario
    shared: dict[Any, Any]

    @property
    def choices(self) -> Choices | None: ...  # noqa: D102


class OfCluster:
    """What the ranks of one cluster share: one of each class that derives from this."""

    @classmethod
    def of(cls, cluster: Surroundings) -> Self:
        """Return that of *cluster*; a new one where none has been put into `Surroundings.shared`."""
        if cls not in cluster.shared:
            cluster.shared[cls] = cls()
        shared: Self = cluster.shared[cls]
        return shared


class ProcessFailures:
    """Failures of processes that ranks have spawned, until the rank that waits gets them."""

    def __init__(self) -> None:
        self._unnoticed: list[BaseException] = []

    @property
    def first(self) -> BaseException | None:
        """The first that no rank has got."""
        return self._unnoticed[0] if self._unnoticed else None

    def keep(self, process: simpy.Event) -> None:
        """Engine: *process* has ended; keep its failure, if it has failed."""
        if not process.ok:
            assert isinstance(process.value, BaseException)
            process.defused = True
            self._unnoticed.append(process.value)

    def notice(self, error: BaseException) -> None:
        """Rank: *error* has been raised in it; so have, within it, the failures that led to it."""
        cause: BaseException | None = error
        while cause is not None:
            self._unnoticed = [other for other in self._unnoticed if other is not cause]
            cause = cause.__cause__
