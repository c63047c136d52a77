"""Process groups between rank threads: replacements in torch for the time of a run.

Whatever backend a script asks for, its process groups are ours (`collectives.torch_backend`), and
what torch does for some backends only it does for them: splitting a group, hooks in C++.  Stores and
rendezvous that ranks meet in, and groups that they make by hand, are parts of one store in virtual time.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import index
from types import SimpleNamespace
from typing import Any

import torch
import torch.cuda.nccl
import torch.distributed as dist
import torch.distributed.device_mesh
from torch._C._distributed_c10d import PrefixStore

from _collective_testbed_entry import BACKEND, register_backend
from collectives.catalogue.selectors import Choice
from collectives.torch_backend import TestbedProcessGroup
from collectives.torch_backend.creation import create, members_from
from collectives.torch_backend.every_group import every_group_ours
from collectives.torch_backend.nccl_options import NCCLOptions
from collectives.torch_backend.replacements import replacements
from collectives.virtual.group import RankThreads
from collectives.virtual.isolation import refusals
from collectives.virtual.isolation.patching import Replacement, replaced
from collectives.virtual.store import VirtualStore
from collectives.virtual.world import VirtualWorld
from sim.cluster import Cluster

_c10d: Any = torch.distributed.distributed_c10d
_c10d_core: Any = torch._C._distributed_c10d


@contextlib.contextmanager
def process_groups_on_rank_threads() -> Iterator[None]:
    """Let rank threads meet in a `VirtualStore` and make process groups of their own."""
    split_group, new_group = _c10d.split_group, _c10d._new_group_with_tag

    def split(parent_pg: Any = None, split_ranks: Any = None, *rest: Any, **options: Any) -> Any:
        if Cluster.current() is None or split_ranks is None or len(split_ranks) == 0:
            return split_group(parent_pg, split_ranks, *rest, **options)
        return _split(dist.get_process_group_ranks(parent_pg), split_ranks, *rest, **options)

    def make(ranks: Any = None, *rest: Any, **options: Any) -> Any:
        if ranks is not None:  # an array, for example, as torch takes it
            ranks = [*map(index, ranks)]
        _announce(ranks, options)
        if _is_of_others(ranks, *rest, **options):
            return _numbered(ranks)
        return new_group(ranks, *rest, **options)

    changes: list[Replacement] = [
        (_c10d, "_new_group_with_tag", make),
        (_c10d, "rendezvous", _meeting(_c10d.rendezvous, lambda url, store: store)),
        *every_group_ours(BACKEND, lambda: Cluster.current() is not None, shows_name_asked_for=True),
        (_c10d, "split_group", split),
        (dist, "split_group", split),
        (torch.distributed.device_mesh, "split_group", split),
        *_meeting_places(),
        (torch.cuda.nccl, "version", lambda: (0, 0, 0)),  # asked for the log, where torch has no NCCL
        *replacements(lambda group: isinstance(group, TestbedProcessGroup)),
        *refusals.replacements(),
    ]
    register_backend()  # torch has not done so where this package is not installed
    with replaced(changes), members_from(_rank_threads):
        _c10d_core._set_thread_isolation_mode(True)
        try:
            yield
        finally:
            _c10d_core._set_thread_isolation_mode(False)


def _rank_threads(options: Any, algorithm: Choice | None) -> RankThreads | None:
    rank_thread = Cluster.current()
    return None if rank_thread is None else RankThreads(rank_thread, options, algorithm)


def _split(
    hosts: Sequence[int],
    parts: Sequence[Sequence[int]],
    timeout: Any = None,
    pg_options: Any = None,
    group_desc: str | None = None,
    backend: Any = None,
) -> Any:
    """Return the new group of the part in which this rank is; ranks are numbered as within *hosts*."""
    mine, own = dist.get_rank(), None
    for part in parts:
        ranks = [hosts[rank] for rank in part]
        if mine in ranks:
            own = dist.new_group(
                ranks, timeout, backend, pg_options, use_local_synchronization=True, group_desc=group_desc
            )
        else:
            _announce(ranks, {})
    return own


def _is_of_others(
    ranks: Sequence[int] | None,
    timeout: Any = None,
    backend: Any = None,
    backend_options: Any = None,
    pg_tag: Any = None,
    use_local_synchronization: bool = False,
    device_id: Any = None,
    **others: Any,
) -> bool:
    """Return whether a rank thread has nothing to do for a new group but to count it, as others are in it.

    A mesh of thousands of ranks has thousands of groups, of all of which torch tells every rank.
    """
    unusual = timeout, backend_options, pg_tag, device_id
    if Cluster.current() is None or not ranks or use_local_synchronization or any(unusual):
        return False
    if os.environ.get("TORCH_DIST_INIT_BARRIER") == "1" or not (backend is None or isinstance(backend, str)):
        return False
    own = _c10d._get_default_group()
    are_known = len(set(ranks)) == len(ranks) and min(ranks) >= 0 and max(ranks) < own.size()
    return are_known and own.rank() not in ranks and own.bound_device_id is None


def _numbered(ranks: Sequence[int]) -> Any:
    """Count a group that this rank is not in, as torch does, and return what it does."""
    _c10d._process_group_name(ranks, use_hashed_name=False)
    return dist.GroupMember.NON_GROUP_MEMBER


def _announce(ranks: Sequence[int] | None, options: Mapping[str, Any]) -> None:
    """Note that this rank makes a group of *ranks*, or is told of one that others make."""
    rank_thread = Cluster.current()
    if rank_thread is not None:
        hosts = range(rank_thread.cluster.topology.num_ranks) if ranks is None else ranks
        ordered = sorted(hosts) if options.get("sort_ranks", True) else hosts
        VirtualWorld.of(rank_thread.cluster).partitions.announce(rank_thread.rank, tuple(ordered))


_core: Any = sys.modules["torch._C._distributed_c10d"]
_PLACES = {"TCPStore": ("host_name", "port"), "FileStore": ("file_name",)}
"""Stores that ranks meet in, and the arguments that tell one from another."""


def _meeting_places() -> Iterator[Replacement]:
    """Yield what stands in torch while ranks run."""
    for name, place in _PLACES.items():
        original = getattr(_core, name)
        among_ranks = _among_ranks(original, *place)
        for module in [module for key, module in sys.modules.items() if key.startswith("torch.")]:
            if vars(module).get(name) is original:
                yield module, name, among_ranks

    meet = _meeting(vars(dist)["rendezvous"], lambda url, store: PrefixStore(f"rendezvous {url}", store))
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


def _meeting(rendezvous: Callable[..., Any], part_of: Callable[[str, Any], Any]) -> Callable[..., Any]:
    """Return *rendezvous*, by which rank threads meet in a part of their store, given the address."""

    def meet(url: str, rank: int = -1, world_size: int = -1, **options: Any) -> Iterator[Any]:
        rank_thread = Cluster.current()
        if rank_thread is None:
            yield from rendezvous(url, rank, world_size, **options)
            return
        num_ranks = rank_thread.cluster.topology.num_ranks
        store = part_of(url, VirtualStore.of(rank_thread))
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
