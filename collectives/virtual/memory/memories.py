"""Memories of the ranks of one run, what tells them what tensors are for, and what is reported of them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_parameter_registration_hook,
)
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from collectives.virtual.isolation.patching import observed, replaced
from collectives.virtual.iterations import Iterations
from collectives.virtual.memory.tracker import Memory
from sim.cluster import RankThread, current_rank_thread
from sim.cluster.surroundings import OfCluster
from sim.units import Quantity, parse_size

_GIB = 2**30


@dataclass(frozen=True)
class MemoryReport:
    """What a rank's device has held at most.

    Attributes:
        rank: which needs most, the lowest of those that need as much.
        peak_bytes: that tensors held at once, rounded as the allocator does; where the memory did not suffice
            and the script got an error, what was held and asked for then.
        reserved_bytes: that the allocator has taken from the device at most.
        by_category: what the peak consists of, in bytes (`collectives.virtual.memory.held_storage.Category`).
        by_module: the same by the full name of the module for which it was made, most first.
        at: when the peak was, or when the memory did not suffice, in words.
        fits: whether the device has had room for all of it; an error of which the script made something else
            does not count.
        limit_bytes: that the device has; None where that is not known.
    """

    rank: int
    peak_bytes: int
    reserved_bytes: int
    by_category: Mapping[str, int]
    by_module: Mapping[str, int]
    at: str
    fits: bool
    limit_bytes: int | None

    @classmethod
    def of(cls, memories: Mapping[int, Memory], has_ended: bool = False) -> MemoryReport | None:
        """Return that of the rank that needs most; None where no memory is modelled."""
        reports = (cls._of_rank(rank, memories[rank], has_ended) for rank in sorted(memories))
        return max(reports, key=lambda report: (not report.fits, report.peak_bytes), default=None)

    @classmethod
    def _of_rank(cls, rank: int, memory: Memory, has_ended: bool) -> MemoryReport:
        overflow = memory.overflow
        reserved = memory.allocator.statistics.reserved_bytes.total.peak
        if overflow is not None and memory.raises and has_ended:
            held = (overflow.nbytes, reserved, overflow.by_category, overflow.by_module, str(overflow.moment))
            return cls(rank, *held, fits=False, limit_bytes=memory.capacity)

        held = (memory.peak.nbytes, reserved, *memory.held_at_peak(), str(memory.peak.moment))
        return cls(rank, *held, fits=overflow is None or memory.raises, limit_bytes=memory.capacity)

    @property
    def text(self) -> str:
        """The verdict in words: ``does not fit: 97.30 of 80.00 GiB at iteration 1, forward of layers.3``."""
        sizes = [size for size in (self.peak_bytes, self.limit_bytes) if size is not None]
        is_small = min(sizes) < _GIB // 100
        unit, name = (2**20, "MiB") if is_small else (_GIB, "GiB")
        used = f"{self.peak_bytes / unit:.2f}"
        of = f" {name}" if self.limit_bytes is None else f" of {self.limit_bytes / unit:.2f} {name}"
        lost = self.reserved_bytes - self.peak_bytes
        if not self.fits and self.limit_bytes is not None and self.peak_bytes <= self.limit_bytes:
            of += f", and {lost / unit:.2f} {name} in pieces too small,"
        return f"{'' if self.fits else 'does not fit: '}{used}{of} at {self.at}"

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON types; sizes are in bytes."""
        return asdict(self)


MemoryLimit: TypeAlias = Quantity | Literal["off"] | None
"""How much memory a device has: None for what its file says, ``off`` to go on beyond that, or a size."""

_VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


class Memories(OfCluster):
    """The memories of the ranks' devices.

    Attributes:
        of_ranks: that of each rank that has a thread and a device with memory.

    Raises:
        UnitError: *limit* cannot be read as a size.
    """

    def __init__(self, limit: MemoryLimit = None) -> None:
        self.of_ranks: dict[int, Memory] = {}
        self._limit = limit if limit is None or limit == "off" else parse_size(limit, "memory_limit")

    def make(
        self,
        rank_thread: RankThread,
        memory_bytes: int | None,
        index: Callable[[], int] = lambda: 0,
        stream: Callable[[], Hashable] = lambda: 0,
    ) -> Memory:
        """Return a new memory of this rank's device."""
        cluster, rank = rank_thread.cluster, rank_thread.rank
        self.of_ranks[rank] = memory = Memory(
            memory_bytes if self._limit is None or self._limit == "off" else int(self._limit),
            raises=self._limit != "off",
            index=index,
            is_expandable=_is_expandable,
            iteration=lambda: 1 + Iterations.of(cluster).finished[rank],
            stream=stream,
        )
        return memory

    def report(self, has_ended: bool = False) -> MemoryReport | None:
        """Return the report of the rank that needs most; None if no rank's device has held anything."""
        held = {rank: memory for rank, memory in self.of_ranks.items() if memory.count}
        return MemoryReport.of(held, has_ended)

    @contextlib.contextmanager
    def followed(self) -> Iterator[None]:
        """Tell the memories meanwhile what modules and optimizers do, and what is resized."""
        resize = observed(torch.UntypedStorage.resize_, after=self._resized)
        with (
            register_module_parameter_registration_hook(self._on_parameter),
            register_module_forward_pre_hook(self._before_forward),
            register_module_forward_hook(self._after_forward, always_call=True),
            register_optimizer_step_pre_hook(self._before_step),
            register_optimizer_step_post_hook(self._after_step),
            replaced([(torch.UntypedStorage, "resize_", resize)]),
        ):
            yield

    def _current(self) -> Memory | None:
        """Return that of the rank whose thread this is."""
        rank_thread = current_rank_thread()
        return None if rank_thread is None else self.of_ranks.get(rank_thread.rank)

    def _resized(self, rank_thread: RankThread, _: object, storage: torch.UntypedStorage, size: int) -> None:
        if (memory := self.of_ranks.get(rank_thread.rank)) is not None:
            memory.resized(storage, "resize_")

    def _on_parameter(self, module: nn.Module, name: str, parameter: Any) -> None:
        if parameter is not None and (memory := self._current()) is not None:
            memory.register(module, parameter)

    def _before_forward(self, module: nn.Module, args: Any) -> None:
        if not torch.compiler.is_compiling() and (memory := self._current()) is not None:
            memory.enter(module)

    def _after_forward(self, module: nn.Module, args: Any, output: Any) -> None:
        if not torch.compiler.is_compiling() and (memory := self._current()) is not None:
            memory.scopes.leave(output)

    def _before_step(self, optimizer: torch.optim.Optimizer, args: Any, options: Any) -> None:
        if (memory := self._current()) is not None:
            memory.begin_step(optimizer)

    def _after_step(self, optimizer: torch.optim.Optimizer, args: Any, options: Any) -> None:
        if (memory := self._current()) is not None:
            memory.end_step(optimizer)


def _is_expandable() -> bool:
    """Return whether the rank's environment asks torch's allocator for segments that grow."""
    settings = ",".join(os.environ.get(name, "") for name in _VARIABLES).replace(" ", "").lower()
    return "expandable_segments:true" in settings
