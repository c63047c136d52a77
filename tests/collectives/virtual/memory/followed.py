"""Ranks whose tensors of the meta device stand for a device's: what they hold is followed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from collectives.virtual.iterations import Iterations
from collectives.virtual.memory.memories import Memories, MemoryLimit
from collectives.virtual.memory.tracker import Memory
from sim.cluster import Cluster
from sim.topology.description import load_network


class Following(TorchDispatchMode):
    """Tells a memory of all tensors of the meta device that operations return."""

    def __init__(self, memory: Memory) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.memory = memory

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in pytree.tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.device.type == "meta":
                self.memory.born(tensor, func)
        return result


def followed(
    fn: Callable[[Memory], Any], memory_bytes: int | None = None, limit: MemoryLimit = None
) -> Memories:
    """Run *fn* on one rank, with meta as the default device, and return its memories."""
    cluster = Cluster(load_network("switch-100g").topology(1))
    iterations = cluster.shared[Iterations] = Iterations(1)
    memories = Memories(limit)

    def run(rank: int) -> None:
        rank_thread = Cluster.current()
        assert rank_thread is not None
        torch.autograd.set_multithreading_enabled(False)
        memory = memories.make(rank_thread, memory_bytes)
        with Following(memory), torch.device("meta"):
            fn(memory)

    with memories.followed(), iterations.counted():
        cluster.run(run)
    return memories
