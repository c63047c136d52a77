"""From a ``torch.distributed`` group to a `Communicator` over it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from collectives.agreement import Agreement
from collectives.communicator import Communicator
from collectives.errors import NotSupportedError
from collectives.native import NativeCommunicator
from collectives.placement import PARAMETER, asks_for_nodes, can_do_without, on_nodes
from collectives.program import Algorithm
from collectives.program_communicator import ProgramCommunicator
from collectives.reports import StoreReports
from collectives.resolve import Choice, resolve_choice
from collectives.transports.gloo import GlooTransport, close_connections
from collectives.transports.nccl import NcclTransport


def connect(
    group: dist.ProcessGroup | None = None,
    algorithm: Choice = "native",
    *,
    timeout: float | None = None,
    device: torch.device | str = "cpu",
    check: bool = False,
) -> Communicator:
    """Return a new communicator between the ranks of *group*; every rank makes the same calls.

    Args:
        group: an initialised process group; None is the default group.
        algorithm: ``native`` is the group's own collectives; anything else, as
            `collectives.resolve_algorithm` takes it, is that of all-reduce, which runs over the
            group's point-to-point calls.  A mapping, such as ``{"all_gather": "bruck"}``, names
            the algorithm of other collectives too.  A parameter ``ranks_per_node`` that is not given
            comes from ``LOCAL_WORLD_SIZE``, which ``torchrun`` sets.
        timeout: seconds within which a collective completes or raises, by default the group's.  The
            last quarter of it, 3 s at most, is kept for asking the other ranks what they were doing.
        device: where the tensors live; decides between the backends of a group that has several.
        check: whether ``native`` first makes sure, at the price of a small barrier, that all ranks
            make the same call.  Over Gloo a mismatch otherwise ends the process, or goes unnoticed.
            Our own programs cannot mix messages up and need no check; NCCL has no such check.

    Raises:
        NotSupportedError: the group's backend has no point-to-point calls that we know, or an
            algorithm needs to know how many ranks share a node, and nobody says.
        UnknownAlgorithmError: there is no such algorithm.
    """
    if group is None:
        if not dist.is_initialized():
            raise NotSupportedError(
                "there is no process group; call torch.distributed.init_process_group first"
            )
        group = dist.group.WORLD
    assert group is not None
    device = torch.device(device)
    if algorithm != "native":
        resolve_choice(algorithm)
    own: Any = getattr(group, "connect", None)
    if own is not None:  # a group of the testbed backend knows its members best
        communicator: Communicator = own(None if algorithm == "native" else algorithm, timeout, device)
        return communicator
    return connect_processes(group, dist.get_process_group_ranks(group), algorithm, timeout, device, check)


def connect_processes(
    group: dist.ProcessGroup,
    ranks: Sequence[int],
    algorithm: Choice,
    timeout: float | None,
    device: torch.device,
    check: bool = False,
) -> Communicator:
    """Return a new communicator over *group*, of one of torch's own backends; see `connect`.

    *ranks* are its members, as numbered in the whole world.
    """
    rank, world_size, store = group.rank(), group.size(), group.get_group_store()
    number = store.add(f"communicators/{rank}", 1)
    chosen = (
        None if algorithm == "native" else _on_nodes(resolve_choice(algorithm), ranks, store, number, rank)
    )
    backend: Any = group._get_backend(device)
    if backend.name() == "gloo":
        seconds = backend.options._timeout.total_seconds() if timeout is None else timeout
        close = partial(close_connections, group)
        reports = StoreReports(store, f"communicator/{number}", rank, world_size, close)
        transport = GlooTransport(group, number, seconds, reports)
        if chosen is None:
            return NativeCommunicator(group, seconds, reports, Agreement(transport) if check else None)
        return ProgramCommunicator(transport, chosen, device)
    reports = StoreReports(store, f"communicator/{number}", rank, world_size)
    if chosen is None:
        return NativeCommunicator(group, timeout, reports)
    if backend.name() == "nccl":
        return ProgramCommunicator(NcclTransport(group, device, reports.explain), chosen, device)
    raise NotSupportedError(
        f"no programs over the backend {backend.name()!r}; use gloo, nccl or testbed, or algorithm='native'"
    )


def _on_nodes(
    algorithms: dict[str, Algorithm], ranks: Sequence[int], store: Any, number: int, rank: int
) -> dict[str, Algorithm]:
    """Bind the node size that the launcher told the group's rank 0, so that all ranks agree."""
    asking = [algorithm for algorithm in algorithms.values() if asks_for_nodes(algorithm)]
    if not asking:
        return algorithms
    key = f"communicator/{number}/{PARAMETER}"
    if rank == 0:
        store.set(key, os.environ.get("LOCAL_WORLD_SIZE", ""))
    said = store.get(key).decode()
    if said.isdecimal() and int(said) > 0:
        return {name: on_nodes(algorithm, int(said), ranks) for name, algorithm in algorithms.items()}
    if not said and all(map(can_do_without, asking)):
        return algorithms
    needing = next((algorithm for algorithm in asking if not can_do_without(algorithm)), asking[0])
    found = f"is {said!r}" if said else "is not set"
    raise NotSupportedError(
        f"{needing} needs to know how many ranks share a node, and LOCAL_WORLD_SIZE {found}: start the "
        f"processes with torchrun, or give {needing.name}:{PARAMETER}=N"
    )
