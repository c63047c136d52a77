"""Connection of a ``torch.distributed`` group: a `Communicator` over it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from collectives.catalogue.admission import admitted
from collectives.catalogue.selectors import (
    NATIVE,
    Choice,
    Fixed,
    Selector,
    check_choice,
    fixed,
    parse_auto,
)
from collectives.communicators.auto import AutoLauncher
from collectives.communicators.call_check import CallCheck
from collectives.communicators.communicator import Communicator
from collectives.communicators.native import NativeLauncher
from collectives.communicators.on_one_host import OnOneHost
from collectives.communicators.programs import ProgramLauncher
from collectives.errors import NotSupportedError, UnknownAlgorithmError
from collectives.execution.transport import Transport
from collectives.program import Algorithm
from collectives.program.placement import PARAMETER, asks_for_nodes, can_do_without, on_nodes
from collectives.transports.gloo import GlooTransport
from collectives.transports.gloo_messages import close_connections
from collectives.transports.gloo_threads import interrupt_nobody
from collectives.transports.nccl import NcclTransport
from collectives.transports.shared_memory import SharedMemoryTransport
from collectives.transports.shared_memory.far import Distance
from collectives.transports.shared_memory.segment import NoSharedMemoryError, Segment
from collectives.transports.store_reports import StoreReports
from collectives.transports.store_words import word

if TYPE_CHECKING:
    from collectives.catalogue.measured_times import Table

ALGORITHM_VARIABLE = "TESTBED_ALGORITHM"

SHM = "shm"
"""The transport through memory that ranks of one host share."""


def connect(
    group: dist.ProcessGroup | None = None,
    algorithm: Choice | None = None,
    *,
    transport: str | None = None,
    timeout: float | None = None,
    device: torch.device | str = "cpu",
    check: bool = False,
) -> Communicator:
    """Return a new communicator between the ranks of *group*; every rank makes the same calls.

    Args:
        group: an initialised process group; None is the default group.
        algorithm: ``native`` is the group's own collectives; anything else runs our programs over the
            group's point-to-point calls: a name, a mapping or ``auto:table=FILE``, which chooses between
            both; see `collectives.catalogue.selectors`.  A parameter ``ranks_per_node`` that is not given
            comes from ``LOCAL_WORLD_SIZE``, which ``torchrun`` sets.  None, with no *transport*, is what the
            environment variable ``TESTBED_ALGORITHM`` says, by which a measured table becomes the default;
            else what is fastest where the ranks stand: ``shm`` where all are on one host and tensors in its
            memory, and ``native`` elsewhere; `Communicator.carrier` says which.
        transport: ``shm`` is memory that the ranks of a host share, and Gloo between hosts, for tensors in
            host memory; by default our programs then are those of `OnOneHost`, or on several hosts
            ``hierarchical``.  None is the group's own, but for what *algorithm* says.
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
        ProgramError: one that is not shipped is wrong for a group of this size.
    """
    if group is None:
        if not dist.is_initialized():
            raise NotSupportedError(
                "there is no process group; call torch.distributed.init_process_group first"
            )
        group = dist.group.WORLD
    assert group is not None
    device = torch.device(device)
    if transport not in (None, SHM):
        raise NotSupportedError(
            f"there is no transport {transport!r}; expected {SHM!r}, or None for the group's"
        )
    if algorithm not in (None, NATIVE):
        check_choice(algorithm)
    own: Any = getattr(group, "connect", None)
    if own is not None:  # a group of the testbed backend knows its members best
        asked = algorithm if transport == SHM or algorithm != NATIVE else None
        communicator: Communicator = own(asked, timeout, device, transport)
        return communicator
    ranks = dist.get_process_group_ranks(group)
    if transport == SHM:
        return connect_memory(group, ranks, algorithm, timeout, device)
    algorithm = algorithm or algorithm_of_environment()
    if algorithm is None and not check:
        on_one_host = _connect_one_host(group, ranks, timeout, device)
        if on_one_host is not None:
            return on_one_host
    return connect_processes(group, ranks, algorithm or NATIVE, timeout, device, check)


def algorithm_of_environment() -> str | None:
    """Return the algorithm that the user's environment asks for where a program names none, or None.

    Raises:
        UnknownAlgorithmError: there is no such algorithm.
    """
    name = os.environ.get(ALGORITHM_VARIABLE) or None
    try:
        if name is not None:
            check_choice(name)
    except UnknownAlgorithmError as error:
        raise UnknownAlgorithmError(f"environment variable {ALGORITHM_VARIABLE}: {error}") from None
    return name


def share_memory(group: dist.ProcessGroup, timeout: float) -> Segment:
    """Return new memory that the ranks of *group* on a host share; every rank makes the same calls.

    Raises:
        NoSharedMemoryError: on all ranks alike: they cannot.
        CollectiveTimeoutError: a rank did not come within *timeout* seconds.
    """
    store = group.get_group_store()
    number = store.add(f"shm communicators/{group.rank()}", 1)
    return Segment(store, f"shm communicator/{number}", group.rank(), group.size(), timeout)


def share_on_one_host(group: dist.ProcessGroup, timeout: float) -> Segment | None:
    """Return memory as `share_memory` does, or None, on all ranks alike, where not all can share it."""
    try:
        segment = share_memory(group, timeout)
    except NoSharedMemoryError:
        return None
    return None if segment.far else segment


def _connect_one_host(
    group: dist.ProcessGroup, ranks: Sequence[int], timeout: float | None, device: torch.device
) -> Communicator | None:
    """Return a communicator through shared memory if all of several ranks can have it, on all ranks alike."""
    if device.type != "cpu" or len(ranks) == 1:
        return None
    backend: Any = group._get_backend(device)
    if backend.name() != "gloo":
        return None
    timeout = backend.options._timeout.total_seconds() if timeout is None else timeout
    segment = share_on_one_host(group, timeout)
    return None if segment is None else connect_memory(group, ranks, None, timeout, device, segment)


def connect_memory(
    group: dist.ProcessGroup,
    ranks: Sequence[int],
    algorithm: Choice | None,
    timeout: float | None,
    device: torch.device,
    segment: Segment | None = None,
) -> Communicator:
    """Return a new communicator of *group* through memory that its ranks of a host share; see `connect`.

    *ranks* are its members, as numbered in the whole world; *segment* is of `share_memory`, and of this
    communicator alone.
    """
    if algorithm == NATIVE or device.type != "cpu":
        asked = "collectives of its own" if algorithm == NATIVE else f"tensors on {device}"
        raise NotSupportedError(f"transport shm has no {asked}; name an algorithm, or leave transport out")
    if timeout is None:
        options: Any = group._get_backend(device)
        timeout = options.options._timeout.total_seconds()
    assert timeout is not None
    if segment is None:
        segment = share_memory(group, timeout)
    rank, world_size, store = group.rank(), group.size(), group.get_group_store()
    selector: Selector | None = _usual(segment)
    if algorithm is not None:
        placement = _Placement(store, segment.prefix, rank, ranks)
        selector = _selector(algorithm, SHM, world_size, placement)
    assert selector is not None
    reports = StoreReports(store, segment.prefix, rank, world_size)
    distance = Distance(group, segment.prefix) if segment.far else None
    if distance is not None:
        interrupt_nobody()
    memory = SharedMemoryTransport(segment, timeout, reports, distance)
    return Communicator(ProgramLauncher(memory, selector, device, memory.carry_out), SHM)


def _usual(segment: Segment) -> Selector:
    """Return which programs ranks take that share memory, where nobody has chosen."""
    if not segment.far:
        return OnOneHost()
    per_host = segment.ranks_per_host
    return fixed("ring" if per_host is None else f"hierarchical:ranks_per_node={per_host}")


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
    backend: Any = group._get_backend(device)
    kind: str = backend.name()
    selector = _selector(
        algorithm, kind, world_size, _Placement(store, f"communicator/{number}", rank, ranks)
    )

    if kind == "gloo":
        interrupt_nobody()
        seconds = backend.options._timeout.total_seconds() if timeout is None else timeout
        close = partial(close_connections, group)
        reports = StoreReports(store, f"communicator/{number}", rank, world_size, close)
        gloo = GlooTransport(group, number, seconds, reports)
        native = NativeLauncher(group, seconds, reports, CallCheck(gloo) if check else None)
    else:
        reports = StoreReports(store, f"communicator/{number}", rank, world_size)
        native = NativeLauncher(group, timeout, reports)

    if selector is None:
        return Communicator(native, NATIVE)
    if kind not in ("gloo", "nccl"):
        raise NotSupportedError(
            f"no programs over the backend {kind!r}; use gloo, nccl or testbed, or algorithm='native'"
        )

    transport: Transport = gloo if kind == "gloo" else NcclTransport(group, device, reports.explain)
    if isinstance(selector, Fixed):
        return Communicator(ProgramLauncher(transport, selector, device), kind)
    programs = ProgramLauncher(transport, selector.without_native(), device)
    return Communicator(AutoLauncher(native, programs, selector), kind)


def _selector(algorithm: Choice, kind: str, world_size: int, placement: _Placement) -> Fixed | Table | None:
    """Return what *algorithm* means on a group of backend *kind*; None means native for all calls."""
    if algorithm == NATIVE:
        return None
    auto = parse_auto(algorithm)
    if auto is None:
        return fixed(algorithm).bound(placement.bind)
    if auto.table is None:
        raise NotSupportedError(
            "auto knows no costs of a real network; measure it with testbed bench --transport "
            f"{kind} --ranks {world_size} --algorithm all --output FILE, and give auto:table=FILE"
        )
    from collectives.catalogue.measured_times import Table

    return Table(auto.table, world_size, transport=kind, bind=placement.bind)


class _Placement:
    """The node size that the launcher told the group's rank 0, asked for when an algorithm needs it.

    All ranks ask in the same call, so they agree.
    """

    def __init__(self, store: Any, prefix: str, rank: int, ranks: Sequence[int]) -> None:
        self.ranks = ranks
        self._store = store
        self._key = f"{prefix}/{PARAMETER}"
        if rank == 0:
            store.set(self._key, os.environ.get("LOCAL_WORLD_SIZE", ""))

    def bind(self, algorithm: Algorithm) -> Algorithm:
        """Return *algorithm* on these nodes, if it asks for them, proved if it is not shipped."""
        return admitted(self._on_nodes(algorithm), len(self.ranks))

    def _on_nodes(self, algorithm: Algorithm) -> Algorithm:
        if not asks_for_nodes(algorithm):
            return algorithm
        said = word(self._store, self._key, self._store.timeout.total_seconds())
        if said.isdecimal() and int(said) > 0:
            return on_nodes(algorithm, int(said), self.ranks)
        if not said and can_do_without(algorithm):
            return algorithm
        found = f"is {said!r}" if said else "is not set"
        raise NotSupportedError(
            f"{algorithm} needs to know how many ranks share a node, and LOCAL_WORLD_SIZE {found}: start the "
            f"processes with torchrun, or give {algorithm.name}:{PARAMETER}=N"
        )
