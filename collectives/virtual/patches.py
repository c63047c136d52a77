"""What is replaced in torch for a run on rank threads, and put back at its end: how ranks meet.

Whatever backend a script asks for, its process groups are ours (`collectives.torch_backend`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.nn.functional  # its defaults capture the group of whoever imports it first

from collectives.autoload import BACKEND
from collectives.torch_backend import TestbedProcessGroup
from collectives.virtual.group import VirtualStore
from sim.cluster import Cluster

_c10d: Any = torch.distributed.distributed_c10d
_c10d_core: Any = torch._C._distributed_c10d


@contextlib.contextmanager
def process_groups_on_rank_threads() -> Iterator[None]:
    """Let rank threads meet in a `VirtualStore` and make process groups of their own."""
    replaced = ("rendezvous", "_new_process_group_helper", "default_pg_nccl_timeout")
    before = {name: getattr(_c10d, name) for name in replaced}
    rendezvous, new_group = before["rendezvous"], before["_new_process_group_helper"]

    def meet(url: str, rank: int = -1, world_size: int = -1, **options: Any) -> Iterator[Any]:
        rank_thread = Cluster.current()
        if rank_thread is None:
            yield from rendezvous(url, rank, world_size, **options)
        else:
            num_ranks = rank_thread.cluster.topology.num_ranks
            store = VirtualStore(rank_thread)
            yield store, rank_thread.rank if rank < 0 else rank, num_ranks if world_size < 0 else world_size

    def make(size: int, rank: int, ranks: list[int], backend: Any, *rest: Any, **options: Any) -> Any:
        if Cluster.current() is None:
            return new_group(size, rank, ranks, backend, *rest, **options)
        group, store = new_group(size, rank, ranks, dist.Backend(BACKEND), *rest, **options)
        if isinstance(group, TestbedProcessGroup):  # the name that the script asked for
            _c10d._world.pg_map[group] = (str(backend), store)
        return group, store

    _c10d.rendezvous, _c10d._new_process_group_helper = meet, make
    _c10d.default_pg_nccl_timeout = _c10d.default_pg_timeout  # unset where torch has no NCCL
    _c10d_core._set_thread_isolation_mode(True)
    try:
        yield
    finally:
        _c10d_core._set_thread_isolation_mode(False)
        for name, value in before.items():
            setattr(_c10d, name, value)
