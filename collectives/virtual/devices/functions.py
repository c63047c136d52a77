"""Functions of ``torch.cuda``, ``torch.accelerator`` and NVTX as rank threads find them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch

from collectives.errors import NotSupportedError
from collectives.virtual.devices.accelerator import CAPABILITY, NAME, NO_MEMORY, Accelerator

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


def _refusal(name: str) -> Callable[..., Any]:
    def refuse(own: Accelerator, *args: Any, **options: Any) -> Any:
        raise NotSupportedError(
            f"{name} means nothing in virtual time, where the CPU computes for CUDA devices; leave it out, "
            "or run the script for real: testbed run --processes N"
        )

    return refuse


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
    "memory_summary": lambda own, *args, **options: NO_MEMORY,
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
