"""Members of a process group of the ``testbed`` backend, and the connections between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore

from collectives.catalogue.selectors import NATIVE, Choice, parse_auto
from collectives.communicators.communicator import Communicator
from collectives.communicators.connection import (
    SHM,
    connect_memory,
    connect_processes,
    share_memory,
    share_on_one_host,
)
from collectives.errors import NotSupportedError
from collectives.torch_backend.door import Door, OpenDoor
from collectives.torch_backend.fresh_store import fresh_store
from collectives.torch_backend.names import NamedProcessGroup
from collectives.transports.shared_memory.segment import Segment

GLOO = "gloo"


class GroupMembers(Protocol):
    """Who is in a process group, and how they are reached.

    Attributes:
        door: what tensors of the script become for communicators, and back.
        store: that they share, of this group alone.
    """

    door: Door
    store: Any

    def belong_to(self, group: NamedProcessGroup) -> None:
        """Get to know the group, whose name and backend come to be known after it is made."""

    def connect(
        self,
        algorithm: Choice | None,
        device: torch.device,
        timeout: float | None,
        transport: str | None = None,
    ) -> Communicator:
        """Return a new communicator between the members; every rank makes the same calls.

        *algorithm* None means the group's own choice; *timeout* is in seconds, None the group's;
        *transport* is as of `collectives.communicators.connection.connect`.
        """

    def stands_for(self, backend: str, device_type: str) -> str:
        """Return the backend whose ways are kept, ``gloo`` or ``nccl``, where a script names *backend*."""

    def check_call(
        self, backend: str, collective: str, tensors: Sequence[torch.Tensor], op: str = ""
    ) -> None:
        """Check that *backend*, which the script has named, takes a call, if another carries it out.

        Raises:
            NotSupportedError: it does not; see `collectives.torch_backend.backend_rules`.
        """

    def store_to_wait_in(self) -> Any:
        """Return the store for somebody who waits in it, while other threads of this rank may ask it."""

    def shutdown(self) -> None:
        """Give back what connects them."""


class Processes:
    """The members are processes, reached through inner groups of torch's own backends.

    What is for CPU tensors is connected at once, so that a rank that is late later is only late.

    Args:
        options: as torch gives them to the creator of a backend: store, rank, size and timeout.
        algorithm: the group's own choice, if it has one.
        nccl: ``ProcessGroupNCCL.Options`` of the group for CUDA tensors; None: NCCL's defaults.
        transport: of CPU tensors: ``shm`` or ``gloo``; None: memory where the processes can share some.
    """

    def __init__(
        self, options: Any, algorithm: Choice | None, nccl: Any = None, *, transport: str | None = None
    ) -> None:
        self.options = options
        self.transport = transport
        self._nccl = nccl
        self.algorithm = algorithm
        self.door: Door = OpenDoor()
        seconds = options.timeout.total_seconds()
        self.store = fresh_store(options.store, options.group_rank, options.group_size, seconds)
        self._groups = {"cpu": self._inner_group(torch.device("cpu"))}
        self._memory = self._share_memory(seconds) if self._takes_memory(algorithm) else None

    def belong_to(self, group: NamedProcessGroup) -> None:
        """Do nothing: processes are reached alike in all groups."""

    def connect(
        self,
        algorithm: Choice | None,
        device: torch.device,
        timeout: float | None,
        transport: str | None = None,
    ) -> Communicator:
        """Return a new communicator through memory or Gloo for CPU tensors, over NCCL for CUDA tensors."""
        if device.type not in self._groups:
            self._groups[device.type] = self._inner_group(device)
        seconds = self.options.timeout.total_seconds() if timeout is None else timeout
        inner = self._groups[device.type]
        ranks = tuple(self.options.global_ranks_in_group) or range(self.options.group_size)
        if transport == SHM:
            return connect_memory(inner, ranks, algorithm or self.algorithm, seconds, device)
        algorithm = algorithm or self.algorithm or "ring"
        if device.type == "cpu" and self._takes_memory(algorithm):
            segment, self._memory = self._memory or self._share_memory(seconds), None
            if segment is not None:
                return connect_memory(inner, ranks, algorithm, seconds, device, segment)
        return connect_processes(inner, ranks, algorithm, seconds, device)

    def stands_for(self, backend: str, device_type: str) -> str:
        """Return nothing: the backend testbed stands for itself."""
        return ""

    def check_call(
        self, backend: str, collective: str, tensors: Sequence[torch.Tensor], op: str = ""
    ) -> None:
        """Check nothing: what carries the call out refuses what it does not take."""

    def _takes_memory(self, algorithm: Choice | None) -> bool:
        """Return whether *algorithm* goes through memory; by default neither Gloo's own nor a table does."""
        is_theirs = algorithm == NATIVE or (algorithm is not None and parse_auto(algorithm) is not None)
        return self.transport == SHM or (self.transport is None and not is_theirs)

    def _share_memory(self, seconds: float) -> Segment | None:
        """Return memory for a communicator; None, from then on, where the processes cannot share any."""
        if self.transport is not None:
            return share_memory(self._groups["cpu"], seconds)
        segment = share_on_one_host(self._groups["cpu"], seconds)
        if segment is None:
            self.transport = GLOO
        return segment

    def _inner_group(self, device: torch.device) -> dist.ProcessGroup:
        options = self.options
        store = PrefixStore(f"inner/{device.type}", self.store)
        group = dist.ProcessGroup(store, options.group_rank, options.group_size)

        if device.type == "cpu":
            kind = dist.ProcessGroup.BackendType.GLOO
            backend: Any = dist.ProcessGroupGloo(
                store, options.group_rank, options.group_size, timeout=options.timeout
            )
        elif device.type == "cuda":
            kind = dist.ProcessGroup.BackendType.NCCL
            nccl = dist.ProcessGroupNCCL.Options() if self._nccl is None else self._nccl
            nccl._timeout = options.timeout
            backend = dist.ProcessGroupNCCL(store, options.group_rank, options.group_size, nccl)
        else:
            raise NotSupportedError(f"testbed moves CPU and CUDA tensors, got one on {device}")

        group._set_default_backend(kind)
        group._register_backend(device, kind, backend)
        name: Any = f"{options.group_id}/inner/{device.type}"  # torch's GroupName, a str
        group._set_group_name(name)
        return group

    def store_to_wait_in(self) -> Any:
        """Return the store by a connection of its own, as one that waits answers nobody else."""
        return self.store.clone()

    def shutdown(self) -> None:
        """Close the inner groups."""
        for group in self._groups.values():
            group.shutdown()
        self._groups.clear()
