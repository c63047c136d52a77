"""CUDA devices of one rank, as it sees them: how many there are, which is current, what is said of them."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from types import FrameType, SimpleNamespace
from typing import Any

import torch

from collectives.errors import NotSupportedError
from collectives.virtual.computation.totals import Totals
from collectives.virtual.gpu.device_random import DeviceRandom
from collectives.virtual.gpu.values import SMALL
from collectives.virtual.memory.memories import Memories
from collectives.virtual.memory.tracker import Memory
from collectives.virtual.notices import Notices
from collectives.virtual.streams.gpu import Gpu
from collectives.virtual.streams.stream_api import DeviceEvent, DeviceStream
from sim.cluster import RankThread
from sim.hardware import Device


class InstantGpu:
    """A GPU on which nothing takes time; it issues what `collectives.virtual.streams.stream_api` asks for.

    An event's number is the moment at which it is recorded, as it has happened then.

    Attributes:
        device: what is said of it.
        default: the default stream.
        current: the stream on which the thread issues now.
        live_events: moments of events that can still be waited for.
        in_use: the rank has made a tensor on a device, or made a device or another stream current.
        at_host_wait: called when the host waits for the device.
        listeners: are told of what is issued, which is nothing.
        graph: captures what is computed now, if one does (`collectives.virtual.gpu.graphs`).
    """

    def __init__(self, rank_thread: RankThread) -> None:
        self.device = SAID
        self.live_events: set[int] = set()
        self.in_use = False
        self.at_host_wait: list[Callable[[], None]] = []
        self.listeners: list[Callable[[Any], None]] = []
        self.graph: Any = None
        self.default = self.current = DeviceStream(self, 0)
        self._rank_thread = rank_thread
        self._num_streams = 1

    def new_stream(self, priority: int = 0) -> DeviceStream:
        """Return a stream of its own number."""
        stream = DeviceStream(self, self._num_streams, priority)
        self._num_streams += 1
        return stream

    def record(self, stream: DeviceStream) -> int:
        """Return the rank's time, at which all is done."""
        return self._rank_thread.now_ps()

    def stream_wait(self, stream: DeviceStream, event: int) -> None:
        """Do nothing: the event has happened."""

    def host_wait(self, what: DeviceEvent | DeviceStream, why: str) -> None:
        """Do not wait: all is done."""
        for listener in self.at_host_wait:
            listener()

    def synchronize(self) -> None:
        """Do not wait: all is done."""
        for listener in self.at_host_wait:
            listener()

    def issue_deferred(self) -> None:
        """Do nothing: nothing is deferred."""

    def launch_graph(self) -> None:
        """Do nothing: a graph takes no time."""

    def has_happened(self, event: int) -> bool:
        """Return that it has."""
        return True

    def time_of(self, event: int) -> int:
        """Return the moment at which *event* was recorded."""
        return event


SAID = Device("virtual GPU", {}, 0, kind="gpu", memory_bytes=80 * 2**30, multiprocessors=132)
"""What scripts are told of a GPU without a model."""


CAPABILITIES = {"v100": (7, 0), "a100": (8, 0), "h100": (9, 0), "h200": (9, 0), "b200": (10, 0)}
"""Compute capabilities by the first word of a device's name; source: NVIDIA's table of CUDA GPUs."""
_OTHERS = (9, 0)

_DEVICES = 8
"""How many numbers of devices there are: so many places torch's guard has for devices without data."""

NO_MEMORY = (
    "no device memory is modelled without a GPU as the model of computation: figures of torch.cuda about it "
    "are 0"
)

_here = threading.local()


class CudaDevices:
    """The devices of one rank, of which it computes on one.

    Attributes:
        gpu: on which it computes, whatever its index; an `InstantGpu` where no model is asked for.
        index: of the current device.
        bound: the device to which `init_process_group` has bound the default group; None: to none.
        random: the generator of the device.
        memory: of the device on which it computes; nothing is ever in it where there is no model.
        is_functional: returns whether a functional collective is being carried out.
        known_integers: so many elements of a tensor of integers may be known in a run without data.
        totals: of what the rank has computed, where a model of the device charges it.
    """

    def __init__(self, rank_thread: RankThread, gpu: Gpu | InstantGpu, has_data: bool) -> None:
        topology = rank_thread.cluster.topology
        self.gpu = gpu
        self.random = DeviceRandom(
            has_data, rank_thread.cluster.shared.setdefault(DeviceRandom, OrderedDict())
        )
        self.index = 0
        self.bound: int | None = None
        self._on_node = min(topology.ranks_per_node, topology.num_ranks)
        if isinstance(gpu, InstantGpu):
            self.memory = Memory(gpu.device.memory_bytes)
        else:
            self.memory = Memories.of(rank_thread.cluster).make(
                rank_thread,
                gpu.device.memory_bytes,
                index=lambda: self.index,
                stream=lambda: gpu.current.number,
            )
            gpu.at_host_wait.append(self.memory.host_waited)
        self.is_functional: Callable[[], bool] = lambda: False
        self.known_integers = SMALL
        self.totals = Totals()
        self._notices = Notices.of(rank_thread.cluster)

    @property
    def num_devices(self) -> int:
        """How many devices the rank sees: those of its node, or what ``CUDA_VISIBLE_DEVICES`` leaves."""
        visible = _visible()
        return self._on_node if visible is None else min(self._on_node, len(visible))

    def on_node(self, index: int | None) -> str | None:
        """Return which device of the node the rank calls *index*, of None the current one.

        None where that cannot be told: the node has one, or more than torch has numbers for.
        """
        if not 1 < self._on_node <= _DEVICES:
            return None
        number, visible = self.index if index is None else index, _visible()
        if visible is None:
            return str(number)
        return visible[number] if number < len(visible) else None

    @staticmethod
    def here() -> CudaDevices | None:
        """Return those of the rank whose thread this is, if it has any."""
        return getattr(_here, "devices", None)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Let these be the devices of this thread while the body runs."""
        _here.devices = self
        try:
            yield
        finally:
            _here.devices = None

    @staticmethod
    def for_code(frame: FrameType) -> CudaDevices | None:
        """Return those of this thread's rank, for the code of *frame*, which calls ``torch.cuda``.

        A rank that has none yet gets them for any code but torch's.
        """
        devices = CudaDevices.here()
        if devices is None:
            enter = getattr(_here, "enter", None)
            devices = None if enter is None or is_torch(frame) else enter()
        return devices

    def set_device(self, device: Any = None) -> None:
        """Make *device* the current one: a number, a name, a device, a context of one, or an object on one.

        Raises:
            RuntimeError: there is no such device, in CUDA's words.
        """
        index = index_of(device)
        if index is None or index < 0:
            return
        self.gpu.in_use = True
        number = number_of(index)
        if number != index:
            self._notices.add(
                f"without CUDA torch numbers {_DEVICES} devices of a node; others have these numbers, too: "
                f"cuda:{_DEVICES} is called cuda:0, and is a device of its own"
            )
        if index >= self.num_devices:
            self._notices.add(
                f"a node of this network has devices 0 to {self.num_devices - 1}; set_device is given",
                str(index),
            )
        self.index = number

    def set_stream(self, stream: DeviceStream) -> None:
        """Make *stream* the current one, which is no use of a device where it was so before."""
        self.gpu.in_use |= stream is not self.gpu.current
        self.gpu.current = stream

    def synchronize(self, device: Any = None) -> None:
        """Let the host wait until the device has done all that was issued."""
        self.gpu.synchronize()

    def record_stream(self, tensor: torch.Tensor, stream: DeviceStream) -> None:
        """Note that *stream* uses *tensor*, whose memory is not reused before."""
        self.memory.shared(tensor, stream.number)

    def communicate(self, tensor: torch.Tensor) -> None:
        """Note that *tensor* is handed to a collective or message; as a buffer unless that is functional.

        Raises:
            NotSupportedError: a graph is being captured, and no GPU is modelled.
        """
        if self.gpu.graph is not None and isinstance(self.gpu, InstantGpu):
            raise NotSupportedError(
                "a collective or message within a CUDA graph needs a GPU that is modelled: --compute h100"
            )
        if not self.is_functional():
            self.memory.communicated(tensor)

    def asked_for_memory(self) -> Memory:
        """Return the memory, and say so where it is not modelled."""
        if isinstance(self.gpu, InstantGpu):
            self._notices.add(NO_MEMORY)
        return self.memory

    def not_known(self, *args: Any, **options: Any) -> int:
        """Return 0, and say that this is not modelled."""
        self._notices.add("what a tool of the driver says of devices is not modelled, and is 0")
        return 0

    def nothing(self, *args: Any, **options: Any) -> None:
        """Do nothing."""

    @property
    def capability(self) -> tuple[int, int]:
        """The compute capability."""
        return CAPABILITIES.get(self.gpu.device.name.lower().partition("-")[0], _OTHERS)

    def properties(self, device: Any = None) -> SimpleNamespace:
        """Return what is said of a device."""
        major, minor = self.capability
        own = self.gpu.device
        return SimpleNamespace(
            name=own.name,
            major=major,
            minor=minor,
            total_memory=own.memory_bytes,
            multi_processor_count=own.multiprocessors,
            warp_size=32,
            is_integrated=False,
            is_multi_gpu_board=False,
        )


def _visible() -> list[str] | None:
    """Return the devices that the rank has left itself, as ``CUDA_VISIBLE_DEVICES`` names them; None: all."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return None if named is None else [name.strip() for name in named.split(",") if name.strip()]


def number_of(index: int) -> int:
    """Return the number of the device that a script calls *index*: the same, if it is below eight.

    On larger nodes numbers begin anew after eight.  A rank computes on one device, whatever its number.

    Raises:
        RuntimeError: there is none, in CUDA's words.
    """
    if index < _DEVICES:
        return index
    devices = CudaDevices.here()
    num_devices = 0 if devices is None else devices.num_devices
    if index >= num_devices:
        raise torch.AcceleratorError(
            f"CUDA error: invalid device ordinal: cuda:{index}.  A node of this network has {num_devices} "
            f"devices, and {max(num_devices, _DEVICES)} are accepted, numbered from 0; take LOCAL_RANK for "
            "the number"
        )
    return index % _DEVICES


def known_integers() -> int:
    """Return how many elements of a tensor of integers may be known here in a run without data."""
    devices = CudaDevices.here()
    return SMALL if devices is None else devices.known_integers


@contextlib.contextmanager
def on_demand(enter: Callable[[], CudaDevices]) -> Iterator[None]:
    """Let *enter* give this thread its devices when code asks for them, while the body runs."""
    _here.enter = enter
    try:
        yield
    finally:
        _here.enter = None


def is_torch(frame: FrameType) -> bool:
    """Return whether torch itself asks, or this project on its behalf; torch's tests are no part of it."""
    name: str = frame.f_globals.get("__name__", "")
    if name.startswith("torch.testing."):
        return False
    return name == "torch" or name.startswith(("torch.", "collectives."))


def index_of(device: Any) -> int | None:
    """Return the number of *device*, None where it has none.

    Args:
        device: a number, a name, a device, a context of one, or an object that is on one.
    """
    device = getattr(device, "idx", getattr(device, "device", device))
    return device if isinstance(device, int) or device is None else torch.device(device).index
