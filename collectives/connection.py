"""From a ``torch.distributed`` group to a `Communicator` over it."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from collectives.communicator import Communicator
from collectives.errors import NotSupportedError
from collectives.native import NativeCommunicator
from collectives.program_communicator import Choice, ProgramCommunicator, resolve_choice
from collectives.reports import StoreReports
from collectives.transports import Transport
from collectives.transports.gloo import GlooTransport
from collectives.transports.nccl import NcclTransport

DEFAULT_TIMEOUT = 1800.0
"""Seconds that a collective may take unless told otherwise: torch's own default for Gloo."""


def connect(
    group: dist.ProcessGroup | None = None,
    algorithm: Choice = "native",
    *,
    timeout: float | None = None,
    device: torch.device | str = "cpu",
) -> Communicator:
    """Return a new communicator between the ranks of *group*; every rank makes the same calls.

    Args:
        group: an initialised process group; None is the default group.
        algorithm: ``native`` is the group's own collectives; anything else, as
            `collectives.resolve_algorithm` takes it, is that of all-reduce, which runs over the
            group's point-to-point calls.  A mapping, such as ``{"all_gather": "bruck"}``, names
            the algorithm of other collectives too.
        timeout: seconds that a collective may take, by default 1800.
        device: where the tensors live; decides between the backends of a group that has several.

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
    reports = StoreReports(store, f"communicator/{lane}", rank, world_size)
    if algorithm == "native":
        return NativeCommunicator(group, timeout, reports.explain)
    seconds = DEFAULT_TIMEOUT if timeout is None else timeout
    backend = group._get_backend(device).name()
    transport: Transport
    if backend == "gloo":
        transport = GlooTransport(group, lane, seconds, reports.explain)
    elif backend == "nccl":
        transport = NcclTransport(group, device, reports.explain)
    else:
        raise NotSupportedError(
            f"no programs over the backend {backend!r}; use gloo, nccl or testbed, or algorithm='native'"
        )
    return ProgramCommunicator(transport, algorithm, device)
