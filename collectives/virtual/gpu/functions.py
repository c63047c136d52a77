"""Functions of ``torch.cuda`` and ``torch.accelerator`` as ranks with a GPU find them, and what brings them.

Until a rank calls one, nothing of CUDA is in place, and nothing is paid for (`triggers`).  Code of torch
itself asks what there really is.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import torch

from collectives.virtual.gpu import graphs
from collectives.virtual.gpu.accelerator import CudaDevices, is_torch
from collectives.virtual.gpu.contexts import DeviceContext, StreamContext
from collectives.virtual.isolation.patching import Replacement, class_in_place
from collectives.virtual.memory import functions as memory
from sim.cluster import Cluster

_NOTHING = (
    "_lazy_init", "init", "ipc_collect", "seed", "seed_all", "set_sync_debug_mode", "_check_capability",
    "_check_cubins",
)  # fmt: skip
_REFUSED = (
    "MemPool", "use_mem_pool", "cudart", "CUDAPluggableAllocator", "change_current_allocator",
    "ExternalStream", "current_blas_handle", "current_solver_handle",
)  # fmt: skip
_OF_THE_DRIVER = "utilization", "memory_usage", "temperature", "power_draw", "clock_rate"
_TENSORS = ("Float", "Double", "Half", "BFloat16", "Long", "Int", "Short", "Byte", "Char", "Bool")


def _tensor(name: str) -> Callable[..., Any]:
    return lambda own, *args, **options: getattr(torch, name)(*args, **options).cuda()


def _of_memory(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda own, *args, **options: function(own.asked_for_memory(), *args, **options)


Functions: TypeAlias = Mapping[str, Callable[..., Any]]
"""What stands for functions of a module of torch, by name; the first argument is the `CudaDevices`."""

CUDA: Functions = {
    **dict.fromkeys(_NOTHING, CudaDevices.nothing),
    **memory.refusals(
        _REFUSED,
        "means nothing on virtual CUDA devices; leave it out, or run the script for real: "
        "testbed run --processes N",
    ),
    **{f"{name}Tensor": _tensor(f"{name}Tensor") for name in _TENSORS},
    **dict.fromkeys(("manual_seed", "manual_seed_all"), lambda own, seed: own.random.seed(seed)),
    **dict.fromkeys(("stream", "StreamContext"), StreamContext),
    **dict.fromkeys(("device", "device_of", "_DeviceGuard"), DeviceContext),
    "_is_compiled": lambda own: True,
    "is_available": lambda own: own.num_devices > 0,
    "get_sync_debug_mode": lambda own: 0,
    "is_initialized": lambda own: own.gpu.in_use,
    **{name: _of_memory(function) for name, function in memory.CUDA.items()},
    **dict.fromkeys(
        ("utilization", "memory_usage", "temperature", "power_draw", "clock_rate"), CudaDevices.not_known
    ),
    "current_stream": lambda own, device=None: own.gpu.current,
    "default_stream": lambda own, device=None: own.gpu.default,
    "synchronize": CudaDevices.synchronize,
    "is_tf32_supported": lambda own: own.capability >= (8, 0),
    "is_bf16_supported": lambda own, *args, **options: own.capability >= (8, 0),
    "can_device_access_peer": lambda own, device, peer: True,
    "CUDAGraph": graphs.CudaGraph,
    "graph": graphs.captured,
    "graph_pool_handle": graphs.pool_handle,
    "is_current_stream_capturing": lambda own: own.gpu.graph is not None,
    "device_count": lambda own: own.num_devices,
    "current_device": lambda own: own.index,
    "set_device": CudaDevices.set_device,
    "set_stream": CudaDevices.set_stream,
    "get_device_name": lambda own, device=None: own.gpu.device.name,
    "get_device_capability": lambda own, device=None: own.capability,
    "get_device_properties": CudaDevices.properties,
    "get_arch_list": lambda own: [],
    "initial_seed": lambda own: own.random.initial_seed,
    "get_rng_state": lambda own, device=None: own.random.state(),
    "get_rng_state_all": lambda own: [own.random.state()],
    "set_rng_state": lambda own, new_state, device=None: own.random.set_state(new_state),
    "set_rng_state_all": lambda own, new_states: own.random.set_state(new_states[0]),
}

ACCELERATOR: Functions = {
    **{name: CUDA[name] for name in ("is_available", "device_count", "current_stream", "set_stream",
                                     "synchronize", "get_device_capability")},
    **{name: _of_memory(function) for name, function in memory.ACCELERATOR.items()},
    **dict.fromkeys(("set_device_index", "set_device_idx"), CudaDevices.set_device),
    **dict.fromkeys(("current_device_index", "current_device_idx"), lambda own: own.index),
    "device_index": DeviceContext,
    "current_accelerator": lambda own, check_available=False: torch.device("cuda"),
    "empty_host_cache": CudaDevices.nothing,
}  # fmt: skip

NVTX: Functions = {
    **dict.fromkeys(("range_push", "range_pop", "range_start", "range_end", "mark"), CudaDevices.nothing),
    "range": lambda own, *args, **options: contextlib.nullcontext(),
}


def triggers(bring: Callable[[], None]) -> Iterator[Replacement]:
    """Yield what stands for torch's own, and calls *bring* before the call goes to what is there then."""
    for module, functions in (
        (torch.cuda, CUDA),
        (torch.accelerator, ACCELERATOR),
        (torch.cuda.nvtx, NVTX),
    ):
        for name in functions.keys() & vars(module).keys():
            yield module, name, _trigger(module, name, bring)
    for module in (torch.cuda, torch):
        for name in ("Stream", "Event"):
            yield module, name, _trigger(module, name, bring)


def _trigger(module: Any, name: str, bring: Callable[[], None]) -> Any:
    original = getattr(module, name)

    def called(frame: Any, *args: Any, **options: Any) -> Any:
        if Cluster.current() is None or CudaDevices.here() is not None or is_torch(frame):
            return original(*args, **options)
        bring()
        return getattr(module, name)(*args, **options)

    if inspect.isclass(original):
        return class_in_place(original, called)
    return functools.wraps(original)(lambda *args, **options: called(sys._getframe(1), *args, **options))
