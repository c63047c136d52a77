"""From a ``torch.distributed`` group to a `Communicator` over it."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from collectives.agreement import Agreement
from collectives.communicator import Communicator
from collectives.errors import NotSupportedError
from collectives.native import NativeCommunicator
from collectives.program_communicator import Choice, ProgramCommunicator, resolve_choice
from collectives.reports import StoreReports
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
            the algorithm of other collectives too.
        timeout: seconds within which a collective completes or raises, by default the group's.  The
            last quarter of it, 3 s at most, is kept for asking the other ranks what they were doing.
        device: where the tensors live; decides between the backends of a group that has several.
        check: whether ``native`` first makes sure, at the price of a small barrier, that all ranks
            make the same call.  Over Gloo a mismatch otherwise ends the process, or goes unnoticed.
            Our own programs cannot mix messages up and need no check; NCCL has no such check.

    Raises:
        NotSupportedError: the group's backend has no point-to-point calls that we know.
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
    rank, world_size, store = group.rank(), group.size(), group.get_group_store()
    lane = store.add(f"communicators/{rank}", 1)
    backend: Any = group._get_backend(device)
    if backend.name() == "gloo":
        seconds = backend.options._timeout.total_seconds() if timeout is None else timeout
        close = partial(close_connections, group)
        reports = StoreReports(store, f"communicator/{lane}", rank, world_size, close)
        transport = GlooTransport(group, lane, seconds, reports)
        if algorithm == "native":
            return NativeCommunicator(group, seconds, reports, Agreement(transport) if check else None)
        return ProgramCommunicator(transport, algorithm, device)
    reports = StoreReports(store, f"communicator/{lane}", rank, world_size)
    if algorithm == "native":
        return NativeCommunicator(group, timeout, reports)
    if backend.name() == "nccl":
        return ProgramCommunicator(NcclTransport(group, device, reports.explain), algorithm, device)
    raise NotSupportedError(
        f"no programs over the backend {backend.name()!r}; use gloo, nccl or testbed, or algorithm='native'"
    )
