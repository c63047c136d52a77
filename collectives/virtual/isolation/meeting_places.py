"""Meeting places that a script makes itself: stores, rendezvous, and process groups without a backend's name.

A real store really waits, while all other ranks wait for their turn.  So a rank thread gets a part of its
`collectives.virtual.store.VirtualStore` wherever it, or torch on its behalf, makes a store of TCP or of a
file; a rendezvous of its own leads to such a part; and ``ProcessGroupGloo`` and ``ProcessGroupNCCL`` are
groups of ours between those who have the same store.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore

from collectives.torch_backend import TestbedProcessGroup
from collectives.torch_backend.creation import create
from collectives.torch_backend.nccl_options import NCCLOptions
from collectives.virtual.isolation.patching import Replacement
from collectives.virtual.store import VirtualStore
from sim.cluster import Cluster

_core: Any = sys.modules["torch._C._distributed_c10d"]
_PLACES = {"TCPStore": ("host_name", "port"), "FileStore": ("file_name",)}
"""Stores that ranks meet in, and the arguments that tell one from another."""


def replacements() -> Iterator[Replacement]:
    """Yield what stands in torch while ranks run."""
    for name, place in _PLACES.items():
        original = getattr(_core, name)
        among_ranks = _among_ranks(original, *place)
        for module in [module for key, module in sys.modules.items() if key.startswith("torch.")]:
            if vars(module).get(name) is original:
                yield module, name, among_ranks

    meet = _meeting(vars(dist)["rendezvous"])
    yield dist, "rendezvous", meet
    yield sys.modules["torch.distributed.rendezvous"], "rendezvous", meet
    for name in ("ProcessGroupGloo", "ProcessGroupNCCL"):
        yield dist, name, _by_hand(getattr(dist, name, None), name.removeprefix("ProcessGroup").lower())


def _among_ranks(store_class: Any, *place: str) -> Any:
    """Return *store_class*, in place of which a rank thread gets a part of its `VirtualStore`.

    The arguments called *place* tell stores from each other.
    """

    class AmongRanks(store_class):  # type: ignore[misc]
        def __new__(cls, *args: Any, **options: Any) -> Any:
            rank_thread = Cluster.current()
            if rank_thread is None:
                return super().__new__(cls)
            values = {**options, **dict(zip(place, args, strict=False))}
            name = ":".join(str(values.get(key)) for key in place)
            return PrefixStore(name, VirtualStore.of(rank_thread))

    return AmongRanks


def _meeting(rendezvous: Callable[..., Any]) -> Callable[..., Any]:
    """Return *rendezvous*, by which rank threads meet in a part of their store for each address."""

    def meet(url: str, rank: int = -1, world_size: int = -1, **options: Any) -> Iterator[Any]:
        rank_thread = Cluster.current()
        if rank_thread is None:
            yield from rendezvous(url, rank, world_size, **options)
            return
        num_ranks = rank_thread.cluster.topology.num_ranks
        store = PrefixStore(f"rendezvous {url}", VirtualStore.of(rank_thread))
        yield store, rank_thread.rank if rank < 0 else rank, num_ranks if world_size < 0 else world_size

    return meet


def _by_hand(original: Any, backend: str) -> Any:
    """Return what a script calls to make a process group of *backend* without giving it a name.

    *original* is None where torch is built without that backend.
    """

    class Kind(type):
        def __call__(cls, store: Any, rank: int, size: int, *rest: Any, **options: Any) -> Any:
            rank_thread = Cluster.current()
            if rank_thread is None:
                if original is None:
                    raise AttributeError(f"this torch is built without {cls.__name__}")
                return original(store, rank, size, *rest, **options)
            store.set(f"host of {rank}", str(rank_thread.rank))
            hosts = [int(store.get(f"host of {member}")) for member in range(size)]
            count = store.add(f"groups of {rank}", 1)
            group = create(
                SimpleNamespace(
                    group_id=f"{backend} {count} by hand",
                    group_rank=rank,
                    group_size=size,
                    global_ranks_in_group=hosts,
                    timeout=dist.constants.default_pg_timeout,
                    store=store,
                ),
                None,
            )
            group.backend_asked_for = backend
            return group

        def __instancecheck__(cls, instance: Any) -> bool:
            if isinstance(instance, TestbedProcessGroup):
                return instance.backend_asked_for == backend
            return original is not None and isinstance(instance, original)

        def __getattr__(cls, name: str) -> Any:
            if name == "Options" and original is None:
                return NCCLOptions
            if original is None:
                raise AttributeError(f"{cls.__name__} has no {name}")
            return getattr(original, name)

    name = "ProcessGroup" + {"gloo": "Gloo", "nccl": "NCCL"}[backend]
    return Kind(name, (), {"__module__": "torch.distributed", "__doc__": getattr(original, "__doc__", None)})
