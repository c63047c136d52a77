"""Functions of ``torch.cuda`` and ``torch.accelerator`` about memory, as a rank on a virtual GPU finds them.

What torch itself computes from ``memory_stats_as_nested_dict``, such as ``memory_stats``, ``memory_summary``
and ``max_memory_allocated``, stays torch's own; here is what asks the allocator.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from collectives.errors import NotSupportedError
from collectives.virtual.memory.tracker import Memory

MemoryFunctions: TypeAlias = Mapping[str, Callable[..., Any]]
"""What stands for functions of a module of torch, by name; the first argument is the rank's `Memory`."""


def _flat(memory: Memory) -> OrderedDict[str, Any]:
    return OrderedDict(sorted(_flattened("", memory.allocator.statistics.to_json()).items()))


def _flattened(prefix: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        return {prefix: value}
    result: dict[str, Any] = {}
    for name, inner in value.items():
        result |= _flattened(f"{prefix}.{name}" if prefix else str(name), inner)
    return result


def _info(memory: Memory) -> tuple[int, int]:
    """Return free and total bytes of the device."""
    if memory.capacity is None:
        raise NotSupportedError(
            "torch.cuda.mem_get_info: the device does not say how much memory it has; give its file a line "
            'such as memory = "80GB"'
        )
    return max(0, memory.capacity - memory.allocator.reserved), memory.capacity


def _of(act: Callable[[Memory], Any]) -> Callable[..., Any]:
    """Return *act* as a function that may be told of a device, which changes nothing."""
    return lambda memory, device=None: act(memory)


def _current(name: str) -> Callable[..., int]:
    return _of(lambda memory: getattr(memory.allocator.statistics, name).total.current)


def _peak(name: str) -> Callable[..., int]:
    return _of(lambda memory: getattr(memory.allocator.statistics, name).total.peak)


def refusals(names: Iterable[str], why: str) -> dict[str, Callable[..., Any]]:
    """Return what stands for functions of ``torch.cuda`` that are refused, and *why*."""

    def refusal(name: str) -> Callable[..., Any]:
        def refuse(*args: Any, **options: Any) -> Any:
            raise NotSupportedError(f"torch.cuda.{name} {why}")

        return refuse

    return {name: refusal(name) for name in names}


def _set_fraction(memory: Memory, fraction: float, device: Any = None) -> None:
    if memory.capacity is not None:
        memory.allocator.limit = int(memory.capacity * fraction)


def _fraction(memory: Memory) -> float:
    limit, capacity = memory.allocator.limit, memory.capacity
    return limit / capacity if limit is not None and capacity else 1.0


_RESET_PEAKS = _of(lambda memory: memory.allocator.statistics.reset_peaks())

COMMON: MemoryFunctions = {
    "empty_cache": _of(lambda memory: memory.allocator.release_cached()),
    "memory_stats": _of(_flat),
    "memory_allocated": _current("allocated_bytes"),
    "max_memory_allocated": _peak("allocated_bytes"),
    "memory_reserved": _current("reserved_bytes"),
    "max_memory_reserved": _peak("reserved_bytes"),
    "reset_peak_memory_stats": _RESET_PEAKS,
    "reset_accumulated_memory_stats": _of(lambda memory: memory.allocator.statistics.reset_sums()),
}
"""Of ``torch.accelerator`` and of ``torch.cuda`` alike."""

ACCELERATOR: MemoryFunctions = {**COMMON, "get_memory_info": _of(_info)}
"""Of ``torch.accelerator`` and ``torch.accelerator.memory``."""

CUDA: MemoryFunctions = {
    **COMMON,
    "memory_stats_as_nested_dict": _of(lambda memory: memory.allocator.statistics.to_json()),
    "memory_cached": _current("reserved_bytes"),
    "max_memory_cached": _peak("reserved_bytes"),
    "reset_max_memory_allocated": _RESET_PEAKS,
    "reset_max_memory_cached": _RESET_PEAKS,
    "mem_get_info": _of(_info),
    "device_memory_used": _current("reserved_bytes"),
    "set_per_process_memory_fraction": _set_fraction,
    "get_per_process_memory_fraction": _of(_fraction),
    "get_allocator_backend": lambda memory: "native",
    "caching_allocator_enable": lambda memory, value=True: None,
    **dict.fromkeys(("host_memory_stats", "host_memory_stats_as_nested_dict"), lambda memory: {}),
    **dict.fromkeys(
        ("reset_accumulated_host_memory_stats", "reset_peak_host_memory_stats"), lambda memory: None
    ),
    "_record_memory_history": lambda memory, *args, **options: None,  # nobody would read it
    **refusals(
        ("memory_snapshot", "_snapshot", "_dump_snapshot", "caching_allocator_alloc"),
        "means nothing for a virtual GPU, whose tensors have no addresses; leave it out.  "
        "torch.cuda.memory_stats and memory_summary answer, and so does the report of the run",
    ),
}
"""Of ``torch.cuda`` and ``torch.cuda.memory``."""
