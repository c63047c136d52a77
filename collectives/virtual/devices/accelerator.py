"""What ``torch.cuda`` and ``torch.accelerator`` are to a script on rank threads: a device that is the CPU.

Everything is done at once, so streams and synchronisation have nothing to do; events tell virtual time.
No device memory is modelled, so memory figures are 0.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, TypeAlias

import torch

from collectives.errors import NotSupportedError
from collectives.virtual.notices import Notices
from sim.cluster import Cluster, RankThread

NAME = "virtual GPU"
CAPABILITY = (9, 0)
MEMORY_BYTES = 80 * 2**30
"""What a device is said to have; nothing of it is ever in use."""

_NO_MEMORY = "no device memory is modelled: figures of torch.cuda about it are 0"


class VirtualStream:
    """A CUDA stream on which everything is done at once."""

    def __init__(self, device: Any = None, priority: int = 0, **other: Any) -> None:
        self.device = torch.device("cpu")
        self.priority = priority
        self.cuda_stream = self.stream_id = 0

    def __enter__(self) -> VirtualStream:
        return self

    def __exit__(self, *raised: object) -> None:
        pass

    def wait_stream(self, stream: object) -> None:
        """Do nothing."""

    def wait_event(self, event: object) -> None:
        """Do nothing."""

    def synchronize(self) -> None:
        """Do nothing."""

    def query(self) -> bool:
        """Return that all is done."""
        return True

    def record_event(self, event: VirtualEvent | None = None) -> VirtualEvent:
        """Return *event*, or a new one, recorded now."""
        event = event or VirtualEvent()
        event.record(self)
        return event


class VirtualEvent:
    """A CUDA event, at a moment of virtual time."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._at_ps = 0

    def record(self, stream: object = None) -> None:
        """Note this rank's time."""
        rank_thread = Cluster.current()
        self._at_ps = 0 if rank_thread is None else rank_thread.now_ps()

    def elapsed_time(self, end: VirtualEvent) -> float:
        """Return the virtual milliseconds from this event to *end*."""
        return (end._at_ps - self._at_ps) / 1e9

    def wait(self, stream: object = None) -> None:
        """Do nothing."""

    def synchronize(self) -> None:
        """Do nothing."""

    def query(self) -> bool:
        """Return that all is done."""
        return True


class Accelerator:
    """The devices of one rank, as it sees them."""

    def __init__(self, rank_thread: RankThread) -> None:
        self.index = 0
        topology = rank_thread.cluster.topology
        self.num_devices = min(topology.ranks_per_node, topology.num_ranks)
        self.stream = VirtualStream()
        self._notices = Notices.of(rank_thread.cluster)

    def set_device(self, device: Any = None) -> None:
        """Make *device* the current one; the CPU, which cuda is mapped to, leaves it as it is."""
        index = device if isinstance(device, int) else torch.device(device).index
        if isinstance(device, str) and ":" in device:
            index = int(device.rpartition(":")[2])
        if index is not None and index >= self.num_devices:
            few = (
                f"a node of this network has {self.num_devices} devices, numbered from 0; set_device is given"
            )
            self._notices.add(few, str(index))
        if index is not None and index >= 0:
            self.index = index

    def nothing(self, *args: Any, **options: Any) -> None:
        """Do nothing."""

    def memory(self, *args: Any, **options: Any) -> int:
        """Return 0, and say why."""
        self._notices.add(_NO_MEMORY)
        return 0

    def memory_info(self, *args: Any, **options: Any) -> tuple[int, int]:
        """Return free and total memory."""
        self._notices.add(_NO_MEMORY)
        return MEMORY_BYTES, MEMORY_BYTES

    def memory_statistics(self, *args: Any, **options: Any) -> dict[str, Any]:
        """Return none."""
        self._notices.add(_NO_MEMORY)
        return {}

    def set_stream(self, stream: VirtualStream) -> None:
        """Make *stream* the current one."""
        self.stream = stream

    @contextlib.contextmanager
    def on_stream(self, stream: VirtualStream | None) -> Iterator[None]:
        """Make *stream* the current one while the body runs."""
        before, self.stream = self.stream, self.stream if stream is None else stream
        try:
            yield
        finally:
            self.stream = before

    @contextlib.contextmanager
    def on_device(self, device: Any = None) -> Iterator[None]:
        """Make *device* the current one while the body runs."""
        before = self.index
        if device is not None and not isinstance(device, torch.Tensor):
            self.set_device(device)
        try:
            yield
        finally:
            self.index = before

    def seed(self, seed: int) -> None:
        """Seed the generator of the CPU, which draws what the device would."""
        torch.default_generator.manual_seed(int(seed))

    def properties(self, device: Any = None) -> SimpleNamespace:
        """Return what is said of a device."""
        major, minor = CAPABILITY
        return SimpleNamespace(
            name=NAME, major=major, minor=minor, total_memory=MEMORY_BYTES, multi_processor_count=132
        )


_NOTHING = (
    "init", "synchronize", "empty_cache", "ipc_collect", "reset_peak_memory_stats", "seed", "seed_all",
    "reset_max_memory_allocated", "reset_max_memory_cached", "reset_accumulated_memory_stats",
    "set_per_process_memory_fraction", "set_sync_debug_mode",
)  # fmt: skip
_MEMORY = (
    "memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "memory_cached",
    "max_memory_cached", "utilization", "memory_usage", "device_memory_used",
)  # fmt: skip
_REFUSED = (
    "CUDAGraph", "graph", "make_graphed_callables", "graph_pool_handle", "MemPool", "use_mem_pool", "cudart",
    "CUDAPluggableAllocator", "change_current_allocator", "ExternalStream",
)  # fmt: skip

_TENSORS = ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Byte", "Char", "Bool")


def _tensor(name: str) -> Callable[..., Any]:
    return lambda own, *args, **options: getattr(torch, name)(*args, **options)


def refuse(name: str) -> Any:
    """Refuse what means nothing on a CPU.

    Raises:
        NotSupportedError: always; says what to do.
    """
    raise NotSupportedError(
        f"{name} means nothing on the CPU, which stands for cuda in virtual time; leave it out there, or run "
        "the script for real: testbed run --processes N"
    )


def _refusal(name: str) -> Callable[..., Any]:
    return lambda own, *args, **options: refuse(name)


Functions: TypeAlias = Mapping[str, Callable[..., Any]]
"""What stands for functions of a module of torch, by name; the first argument is the `Accelerator`."""

CUDA: Functions = {
    **dict.fromkeys(_NOTHING, Accelerator.nothing),
    **dict.fromkeys(_MEMORY, Accelerator.memory),
    **{name: _refusal(f"torch.cuda.{name}") for name in _REFUSED},
    **{f"{name}Tensor": _tensor(f"{name}Tensor") for name in _TENSORS},
    **dict.fromkeys(("manual_seed", "manual_seed_all"), Accelerator.seed),
    **dict.fromkeys(("current_stream", "default_stream"), lambda own, device=None: own.stream),
    **dict.fromkeys(("stream", "StreamContext"), Accelerator.on_stream),
    **dict.fromkeys(("device", "device_of"), Accelerator.on_device),
    **dict.fromkeys(("is_available", "is_initialized", "is_tf32_supported"), lambda own: True),
    "is_bf16_supported": lambda own, *args, **options: True,
    "can_device_access_peer": lambda own, device, peer: True,
    "is_current_stream_capturing": lambda own: False,
    "device_count": lambda own: own.num_devices,
    "current_device": lambda own: own.index,
    "set_device": Accelerator.set_device,
    "set_stream": Accelerator.set_stream,
    "get_device_name": lambda own, device=None: NAME,
    "get_device_capability": lambda own, device=None: CAPABILITY,
    "get_device_properties": Accelerator.properties,
    "get_arch_list": lambda own: [],
    "mem_get_info": Accelerator.memory_info,
    "memory_stats": Accelerator.memory_statistics,
    "memory_summary": lambda own, *args, **options: _NO_MEMORY,
    "initial_seed": lambda own: torch.initial_seed(),
    "get_rng_state": lambda own, device=None: torch.get_rng_state(),
    "get_rng_state_all": lambda own: [torch.get_rng_state()],
    "set_rng_state": lambda own, state, device=None: torch.set_rng_state(state),
    "set_rng_state_all": lambda own, states: torch.set_rng_state(states[0]),
}

ACCELERATOR: Functions = {
    **CUDA,
    **dict.fromkeys(("set_device_index", "set_device_idx"), Accelerator.set_device),
    **dict.fromkeys(("current_device_index", "current_device_idx"), lambda own: own.index),
    "device_index": Accelerator.on_device,
    "current_accelerator": lambda own, check_available=False: torch.device("cpu"),
    "get_memory_info": Accelerator.memory_info,
    "empty_host_cache": Accelerator.nothing,
}

NVTX: Functions = {
    **dict.fromkeys(("range_push", "range_pop", "range_start", "range_end", "mark"), Accelerator.nothing),
    "range": lambda own, *args, **options: contextlib.nullcontext(),
}
