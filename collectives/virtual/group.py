"""Members of process groups between rank threads."""

from __future__ import annotations

from typing import Any

import torch

from collectives.catalogue.native import by_itself, native_over
from collectives.catalogue.selectors import NATIVE, Choice, Selector
from collectives.communicators.communicator import Communicator
from collectives.communicators.programs import ProgramLauncher
from collectives.models.cost import selector_on
from collectives.simulation.engines.meeting_point import MeetingPoint
from collectives.virtual.batched_execution import BatchedExecutions
from collectives.virtual.progress import RankProgress
from collectives.virtual.transport import SimulatedTransport
from collectives.virtual.world import VirtualWorld
from sim.cluster import RankThread


class RankThreads:
    """Threads of a cluster as members of a group; `collectives.torch_backend.members.GroupMembers`.

    Args:
        rank_thread: this rank.
        options: as torch gives them to the creator of a backend.
        algorithm: the group's own choice; None means the run's.

    Attributes:
        ordinal: how many groups of the same members in the same order this rank had made before.
    """

    def __init__(self, rank_thread: RankThread, options: Any, algorithm: Choice | None) -> None:
        self.rank_thread = rank_thread
        self.rank = options.group_rank
        self.hosts = tuple(options.global_ranks_in_group) or tuple(range(options.group_size))
        self.world = VirtualWorld.of(rank_thread.cluster)
        self.algorithm = algorithm or self.world.algorithm
        name = options.group_id
        self.ordinal = self.world.partitions.join(rank_thread.rank, self.hosts)
        self.key = (name, self.hosts, self.world.count((name, self.hosts, rank_thread.rank)))

    def connect(self, algorithm: Choice | None, device: torch.device, timeout: float | None) -> Communicator:
        """Return a new communicator over the simulated network; its time-out is the deadlock."""
        self.world.classes.check_group(self.hosts, self.ordinal, self.rank_thread.rank)
        chosen = algorithm or self.algorithm
        model = self.world.transport_model
        key = (self.key, self.world.count((self.key, self.rank)))
        if key not in self.world.meeting_points:
            cluster = self.rank_thread.cluster
            meeting_point = MeetingPoint(
                cluster.network,
                self.hosts,
                cluster.scenario.rank_overhead(self.world.rank_overhead, self.hosts),
                self.world.delay_ps,
                by_itself(model) if chosen == NATIVE else model,
            )
            meeting_point.is_calm = self.world.is_calm
            self.world.meeting_points[key] = meeting_point
            self.world.batched[key] = BatchedExecutions(meeting_point)
        meeting_point = self.world.meeting_points[key]
        rank_thread, world = self.rank_thread, self.world
        progress = world.progress.setdefault(rank_thread.rank, RankProgress(rank_thread))
        transport = SimulatedTransport(meeting_point, self.rank, rank_thread, world.trace, progress)
        selector: Selector
        if chosen == NATIVE:
            selector = native_over(model, len(self.hosts))
        else:
            selector = selector_on(rank_thread.cluster.topology, chosen, self.hosts, world.rank_overhead)
        return Communicator(ProgramLauncher(transport, selector, device, self.world.batched[key].carry_out))

    def shutdown(self) -> None:
        """Do nothing: a cluster gives back everything at its end."""
