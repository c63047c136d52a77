"""Members of process groups between rank threads."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Collection, Sequence
from types import CodeType
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.constants import default_pg_timeout
from torch.nn.modules._functions import SyncBatchNorm

from collectives.catalogue.native import by_itself, native_over
from collectives.catalogue.selectors import NATIVE, NCCL, OF_LIBRARY, Choice, Selector, kernels_in
from collectives.communicators.communicator import Communicator
from collectives.communicators.programs import ProgramLauncher
from collectives.errors import NotSupportedError
from collectives.timing.cost import selector_on
from collectives.timing.ranks.meeting_point import MeetingPoint
from collectives.torch_backend.backend_rules import PREMUL_SUM, backend_of, moves_in_memory_order, refusal
from collectives.torch_backend.door import Door
from collectives.torch_backend.names import NamedProcessGroup
from collectives.virtual.batched_execution import BatchedExecutions
from collectives.virtual.diagnosis.places import current_place, frames_from
from collectives.virtual.gpu.accelerator import CudaDevices
from collectives.virtual.gpu.door import OnValues, ValueDoor
from collectives.virtual.group_calls.exchange import Exchanges
from collectives.virtual.group_calls.launcher import Group, StreamLauncher
from collectives.virtual.library_calls import CallsOfGroup, LibraryPrograms
from collectives.virtual.notices import Notices
from collectives.virtual.progress import RankProgress
from collectives.virtual.streams.gpu import Gpu, current_gpu
from collectives.virtual.time_outs import NCCL_DEFAULT, Pauses, TimeOut
from collectives.virtual.transport import SimulatedTransport
from collectives.virtual.world import Noted, VirtualWorld
from sim.cluster import RankThread
from sim.units import SECOND

_OF_MESH = "mesh_"
_BLOCKING = ("TORCH_NCCL_BLOCKING_WAIT", "NCCL_BLOCKING_WAIT")
_OF_OBJECTS = {
    inspect.unwrap(function).__code__
    for function in (
        *(dist.all_gather_object, dist.gather_object, dist.scatter_object_list),
        *(dist.broadcast_object_list, dist.send_object_list, dist.recv_object_list),
    )
}
"""Functions that pass objects, by the memory of the host here, and of the device over NCCL."""
_OF_NORMS = {inspect.unwrap(SyncBatchNorm.forward).__code__}
"""What gives a group other shapes where that is called Gloo, which no group is here."""
ON_CPU = "nccl refuses tensors of the CPU, which it was given here: move them, or name cpu:gloo,cuda:nccl"
SAME_DEVICE = (
    "nccl refuses several ranks on one GPU of a node (duplicate GPU); here each has its own: call "
    "torch.cuda.set_device(int(os.environ['LOCAL_RANK'])) before there are tensors on"
)
IN_MEMORY_ORDER = (
    "nccl passes the elements of a message in the order of the sender's memory, here by value: give "
    "tensor.contiguous() on both sides"
)


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
        self.door: Door = ValueDoor()
        self.store = options.store
        self._group: NamedProcessGroup | None = None
        self._looked_at: set[int] = set()  # devices, each once: a group stays bound to what it is
        name = options.group_id
        chosen = options.timeout
        self._timeout = None if chosen in (default_pg_timeout, NCCL_DEFAULT) else chosen.total_seconds()
        self._limit_ps = round(chosen.total_seconds() * SECOND)
        self.ordinal = self.world.partitions.join(rank_thread.rank, self.hosts)
        self.key = (name, self.hosts, self.world.count((name, self.hosts, rank_thread.rank)))

    def connect(
        self,
        algorithm: Choice | None,
        device: torch.device,
        timeout: float | None,
        transport: str | None = None,
    ) -> Communicator:
        """Return a new communicator over the simulated network.

        Where the script has chosen no time-out, a deadlock is found at once; a rank that is later than the
        default is found in any case (`collectives.virtual.time_outs`). Whatever *transport* the script asks
        for, messages travel as the run says.
        """
        self.world.classes.check_group(self.hosts, self.ordinal, self.rank_thread.rank)
        chosen = algorithm or self.algorithm
        if chosen == NATIVE and self.world.library is not None:
            chosen = NCCL
        selector, library = self._selector(chosen), None
        if chosen == NCCL and self.world.library is not None:
            library = self.world.library.of(self.hosts)
            selector = LibraryPrograms(library, selector)
        launches = chosen not in OF_LIBRARY
        gpu = current_gpu()
        if gpu is not None:
            return Communicator(self._on_streams(gpu, self._noted(selector), device, library, launches))

        model = self.world.transport_model
        limit_ps = self._limit_ps if timeout is None else round(timeout * SECOND)
        key = (self.key, self.world.count((self.key, self.rank)))
        if key not in self.world.meeting_points:
            cluster = self.rank_thread.cluster
            overhead = cluster.scenario.rank_overhead(self.world.rank_overhead, self.hosts)
            meeting_point = MeetingPoint(
                cluster.network,
                self.hosts,
                overhead if launches else overhead.in_one_kernel(),
                self.world.delay_ps,
                by_itself(model) if chosen == NATIVE else model,
            )
            meeting_point.is_calm = self.world.is_calm
            meeting_point.key = key
            self.world.meeting_points[key] = meeting_point
            self.world.batched[key] = BatchedExecutions(meeting_point)
            self.world.time_outs[key] = TimeOut(
                self.hosts, limit_ps, Pauses.of(cluster), lambda: not self._is_nccl(device.type)
            )
        meeting_point = self.world.meeting_points[key]
        rank_thread, world = self.rank_thread, self.world
        progress = world.progress.setdefault(rank_thread.rank, RankProgress(rank_thread))
        seconds = self._timeout if timeout is None else timeout
        simulated = SimulatedTransport(
            meeting_point,
            self.rank,
            rank_thread,
            world.trace,
            progress,
            seconds,
            world.time_outs[key],
            kernels_in(chosen),
        )
        carry_out = self.world.batched[key].carry_out
        if library is not None:
            carry_out = LibraryPrograms(library, selector, carry_out).carry_out
        programs = ProgramLauncher(simulated, self._noted(selector), carry_out=carry_out)
        return Communicator(OnValues(programs))

    def stands_for(self, backend: str, device_type: str) -> str:
        """Return the backend whose ways are kept where a script names *backend*; none if lenient."""
        return "" if self.world.is_lenient else backend_of(backend, device_type)

    def check_call(
        self, backend: str, collective: str, tensors: Sequence[torch.Tensor], op: str = ""
    ) -> None:
        """Check that *backend* takes a call, as a real job would meet it.

        Raises:
            NotSupportedError: it does not, and the run is not lenient.
        """
        device_type = tensors[0].device.type
        backend = self.stands_for(backend, device_type)
        if not backend:
            return
        if backend == "nccl":
            self._check_device(collective, tensors[0])
        notice, gpu = "", current_gpu()
        if op == PREMUL_SUM and gpu is not None and gpu.graph is not None:
            raise NotSupportedError(
                f"{collective} with {op} in a CUDA graph is not modelled: multiply before it"
            )
        if backend == "nccl" and device_type == "cpu" and gpu is not None and gpu.in_use:
            notice = "" if _is_called_by(_OF_OBJECTS) else ON_CPU
        elif (refused := refusal(backend, collective, tensors, op)) and not _is_called_by(_OF_NORMS):
            raise NotSupportedError(f"{refused}; --lenient (lenient=True) computes it by value")
        elif moves_in_memory_order(backend, collective, tensors[0]):
            notice = IN_MEMORY_ORDER
        if notice:
            Notices.of(self.rank_thread.cluster).add(notice, current_place() or collective)

    def _check_device(self, collective: str, tensor: torch.Tensor) -> None:
        """Check that *tensor* is on the group's device, and say so where another rank takes part from it.

        Objects go by the current device.

        Raises:
            NotSupportedError: the group is bound to another device.
        """
        devices = CudaDevices.here()
        if devices is None or (tensor.device.type == "cpu" and not _is_called_by(_OF_OBJECTS)):
            return
        index = devices.index if tensor.device.index is None else tensor.device.index
        if index in self._looked_at:
            return
        if devices.bound not in (None, index):
            raise NotSupportedError(
                f"nccl refuses {collective} of a tensor on cuda:{index}, as init_process_group was given "
                f"device_id cuda:{devices.bound}: call torch.cuda.set_device({devices.bound}) before there "
                "are tensors; --lenient (lenient=True) computes it by value"
            )
        self._looked_at.add(index)
        device = devices.on_node(index)
        if device is None:
            return
        cluster, rank = self.rank_thread.cluster, self.rank_thread.rank
        node = rank // cluster.topology.ranks_per_node
        if self.world.on_devices.setdefault((self.key, node, device), rank) != rank:
            Notices.of(cluster).add(SAME_DEVICE, f"cuda:{device}")

    def store_to_wait_in(self) -> Any:
        """Return the store: it answers every thread."""
        return self.store

    def _selector(self, chosen: Choice) -> Selector:
        if chosen == NATIVE:
            selector: Selector = native_over(self.world.transport_model, len(self.hosts))
        else:
            topology = self.rank_thread.cluster.topology
            selector = selector_on(topology, chosen, self.hosts, self.world.rank_overhead)
        return selector

    def _noted(self, selector: Selector) -> Selector:
        return Noted(selector, self.hosts, self.world.carried)

    def _on_streams(
        self,
        gpu: Gpu,
        selector: Selector,
        device: torch.device,
        library: CallsOfGroup | None,
        launches: bool,
    ) -> StreamLauncher:
        """Return what issues calls on the streams of this rank's GPU."""
        names = self.world.group_names.setdefault((self.hosts, self.ordinal), [])
        if self.key[0] not in names:
            names.append(self.key[0])  # ranks that make groups in another order do not mean the same one
        number = self.world.count((self.key, self.rank, device.type))
        group = Group(
            self.hosts,
            (self.ordinal, number, int(device.type != "cpu"), names.index(self.key[0])),
            self.rank,
            self._name(),
            self._host_waits(),
            device.type,
            self._before_call,
            self._limit_ps,
            launches,
            self.world.rank_overhead.step_ps,
            device.type != "cpu" or self._is_nccl(device.type),
        )
        exchanges = Exchanges.of(self.rank_thread.cluster)
        return StreamLauncher(gpu, group, selector, self.world.group_calls, exchanges, library)

    def _is_nccl(self, device_type: str) -> bool:
        """Return whether tensors of *device_type* go over NCCL, by the name that the script gave."""
        return self._group is not None and backend_of(self._group.backend_asked_for, device_type) == "nccl"

    def _before_call(self, count: int) -> None:
        """Tell whoever compares ranks that this one is about to make a call of *count* elements."""
        for listener in self.world.classes.before_call:
            listener(self.rank_thread, count)

    def _name(self) -> str:
        """Return a name of the group for people: the dimension of a mesh it is of, or its ranks."""
        described = "" if self._group is None else self._group.getGroupDesc()
        if described.startswith(_OF_MESH):
            return f"{described.removeprefix(_OF_MESH)}, {len(self.hosts)} ranks"
        if len(self.hosts) == self.rank_thread.cluster.topology.num_ranks:
            return "all ranks"
        return f"ranks {', '.join(map(str, self.hosts[:3]))}{' …' if len(self.hosts) > 3 else ''}"

    def _host_waits(self) -> bool:
        """Return whether the host waits for a collective, as the script has asked for."""
        if self._group is not None and self._group.backend_asked_for == "gloo":
            return True
        return any(os.environ.get(name, "0") not in ("", "0") for name in _BLOCKING)

    def belong_to(self, group: NamedProcessGroup) -> None:
        """Get to know the group, whose name and backend come to be known after it is made."""
        self._group = group

    def shutdown(self) -> None:
        """Do nothing: a cluster gives back everything at its end."""


def _is_called_by(functions: Collection[CodeType]) -> bool:
    """Return whether one of torch's *functions* makes the call that is checked."""
    return any(frame.f_code in functions for frame in frames_from(sys._getframe(1)))
