"""Memories of the ranks of one run, and the hooks of torch that tell them what tensors are for."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Hashable, Iterator
from typing import Any, Literal, TypeAlias

import torch
from torch import nn
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
    register_module_parameter_registration_hook,
)
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from collectives.virtual.isolation.patching import replaced
from collectives.virtual.iterations import Iterations
from collectives.virtual.memory.report import MemoryReport
from collectives.virtual.memory.tracker import Memory
from sim.cluster import RankThread, Surroundings, current_rank_thread
from sim.units import Quantity, parse_size

MemoryLimit: TypeAlias = Quantity | Literal["off"] | None
"""How much memory a device has: None for what its file says, ``off`` to go on beyond that, or a size."""

_VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


class Memories:
    """The memories of the ranks' devices.

    Args:
        limit: of each device.

    Attributes:
        of_ranks: that of each rank that has a thread and a device with memory.

    Raises:
        UnitError: *limit* cannot be read as a size.
    """

    def __init__(self, limit: MemoryLimit = None) -> None:
        self.of_ranks: dict[int, Memory] = {}
        self._limit = limit if limit is None or limit == "off" else parse_size(limit, "memory_limit")

    @staticmethod
    def of(cluster: Surroundings) -> Memories:
        """Return those of *cluster*, where `collectives.virtual.run` has put them."""
        memories: Memories = cluster.shared[Memories]
        return memories

    def make(
        self,
        rank_thread: RankThread,
        memory_bytes: int | None,
        index: Callable[[], int] = lambda: 0,
        stream: Callable[[], Hashable] = lambda: 0,
    ) -> Memory:
        """Return a new memory of this rank's device.

        Args:
            rank_thread: of the rank.
            memory_bytes: that the device has, as its file says; None: it does not.
            index: returns the number of the current device, for errors.
            stream: returns the rank's current stream.
        """
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
        """Return the report of the rank that needs most; None if no rank's device has memory.

        Args:
            has_ended: an error has ended the run.
        """
        return MemoryReport.of(self.of_ranks, has_ended)

    @contextlib.contextmanager
    def followed(self, is_on: bool = True) -> Iterator[None]:
        """Tell the memories meanwhile what modules and optimizers do, and what is resized, if it *is_on*."""
        if not is_on:
            yield
            return
        resize = torch.UntypedStorage.resize_

        def resize_(storage: torch.UntypedStorage, size: int) -> Any:
            result = resize(storage, size)
            if (memory := self._current()) is not None:
                memory.resized(storage, "resize_")
            return result

        handles = [
            register_module_parameter_registration_hook(self._on_parameter),
            register_module_forward_pre_hook(self._before_forward),
            register_module_forward_hook(self._after_forward, always_call=True),
            register_optimizer_step_pre_hook(self._before_step),
            register_optimizer_step_post_hook(self._after_step),
        ]
        try:
            with replaced([(torch.UntypedStorage, "resize_", resize_)]):
                yield
        finally:
            for handle in handles:
                handle.remove()

    def _current(self) -> Memory | None:
        """Return that of the rank whose thread this is."""
        rank_thread = current_rank_thread()
        return None if rank_thread is None else self.of_ranks.get(rank_thread.rank)

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
