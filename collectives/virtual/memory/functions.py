"""Functions of ``torch.cuda`` and ``torch.accelerator`` about memory, as a rank on a virtual GPU finds them.

What torch itself computes from ``memory_stats_as_nested_dict``, such as ``memory_stats``, ``memory_summary``
and ``max_memory_allocated``, stays torch's own; here is what asks the allocator.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from collectives.errors import NotSupportedError
from collectives.virtual.memory.tracker import Memory

MemoryFunctions: TypeAlias = Mapping[str, Callable[..., Any]]
"""What stands for functions of a module of torch, by name; the first argument is the rank's `Memory`."""


def _statistics(memory: Memory, device: Any = None) -> dict[str, Any]:
    return memory.allocator.statistics.to_json()


def _flat(memory: Memory, device: Any = None) -> OrderedDict[str, Any]:
    return OrderedDict(sorted(_flattened("", _statistics(memory)).items()))


def _flattened(prefix: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        return {prefix: value}
    result: dict[str, Any] = {}
    for name, inner in value.items():
        result |= _flattened(f"{prefix}.{name}" if prefix else str(name), inner)
    return result


def _info(memory: Memory, device: Any = None) -> tuple[int, int]:
    """Return free and total bytes of the device."""
    if memory.capacity is None:
        raise NotSupportedError(
            "torch.cuda.mem_get_info: the device does not say how much memory it has; give its file a line "
            'such as memory = "80GB"'
        )
    return max(0, memory.capacity - memory.allocator.reserved), memory.capacity


def _empty_cache(memory: Memory) -> None:
    memory.allocator.release_cached()


def _reset_peaks(memory: Memory, device: Any = None) -> None:
    memory.allocator.statistics.reset_peaks()


def _reset_sums(memory: Memory, device: Any = None) -> None:
    memory.allocator.statistics.reset_sums()


def _current(name: str) -> Callable[..., int]:
    return lambda memory, device=None: getattr(memory.allocator.statistics, name).total.current


def _peak(name: str) -> Callable[..., int]:
    return lambda memory, device=None: getattr(memory.allocator.statistics, name).total.peak


def _refusal(name: str) -> Callable[..., Any]:
    def refuse(memory: Memory, *args: Any, **options: Any) -> Any:
        raise NotSupportedError(
            f"{name} means nothing for a virtual GPU, whose tensors have no addresses; leave it out.  "
            "torch.cuda.memory_stats and memory_summary answer, and so does the report of the run"
        )

    return refuse


def _nothing(memory: Memory, *args: Any, **options: Any) -> None:
    """Do nothing: a recording of what the device allocates has nobody to read it."""


def _set_fraction(memory: Memory, fraction: float, device: Any = None) -> None:
    if memory.capacity is not None:
        memory.allocator.limit = int(memory.capacity * fraction)


COMMON: MemoryFunctions = {
    "empty_cache": _empty_cache,
    "memory_stats": _flat,
    "memory_allocated": _current("allocated_bytes"),
    "max_memory_allocated": _peak("allocated_bytes"),
    "memory_reserved": _current("reserved_bytes"),
    "max_memory_reserved": _peak("reserved_bytes"),
    "reset_peak_memory_stats": _reset_peaks,
    "reset_accumulated_memory_stats": _reset_sums,
}
"""Of ``torch.accelerator`` and of ``torch.cuda`` alike."""

ACCELERATOR: MemoryFunctions = {**COMMON, "get_memory_info": _info}
"""Of ``torch.accelerator`` and ``torch.accelerator.memory``."""

CUDA: MemoryFunctions = {
    **COMMON,
    "memory_stats_as_nested_dict": _statistics,
    "memory_cached": _current("reserved_bytes"),
    "max_memory_cached": _peak("reserved_bytes"),
    "reset_max_memory_allocated": _reset_peaks,
    "reset_max_memory_cached": _reset_peaks,
    "mem_get_info": _info,
    "device_memory_used": _current("reserved_bytes"),
    "set_per_process_memory_fraction": _set_fraction,
    "_record_memory_history": _nothing,
    **{
        name: _refusal(f"torch.cuda.{name}")
        for name in ("memory_snapshot", "_snapshot", "_dump_snapshot", "caching_allocator_alloc")
    },
}
"""Of ``torch.cuda`` and ``torch.cuda.memory``."""
