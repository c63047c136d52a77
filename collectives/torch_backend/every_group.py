"""Process groups of our backend, whichever backend a script asks for."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from collectives.torch_backend.creation import TestbedOptions
from collectives.torch_backend.group import TestbedProcessGroup
from collectives.torch_backend.nccl_options import is_of_nccl

_c10d: Any = dist.distributed_c10d


def every_group_ours(
    backend: str,
    applies: Callable[[], bool] = lambda: True,
    *,
    options: TestbedOptions | None = None,
    shows_name_asked_for: bool = False,
) -> list[tuple[Any, str, Any]]:
    """Return owners, names of their attributes, and what stands there so that every new group is ours.

    Args:
        backend: the name under which ours is registered.
        applies: whether it does so for the thread that makes a group.
        options: of all groups, but for those of NCCL that each may have; None: each has its own.
        shows_name_asked_for: ``get_backend`` then tells the script the backend that it has asked for.
    """
    new_group = _c10d._new_process_group_helper

    @functools.wraps(new_group)
    def make(size: int, rank: int, ranks: list[int], wanted: Any, *rest: Any, **more: Any) -> Any:
        if not applies():
            return new_group(size, rank, ranks, wanted, *rest, **more)
        if options is not None:
            given = more.get("backend_options")
            more["backend_options"] = replace(options, nccl=given) if is_of_nccl(given) else options
        group, store = new_group(size, rank, ranks, dist.Backend(backend), *rest, **more)
        if isinstance(group, TestbedProcessGroup):
            group.backend_asked_for = str(wanted)
        if shows_name_asked_for and isinstance(group, TestbedProcessGroup):
            _c10d._world.pg_map[group] = (str(wanted), store)
        return group, store

    return [
        (_c10d, "_new_process_group_helper", make),
        (_c10d, "default_pg_nccl_timeout", timedelta(minutes=10)),  # unset where torch has no NCCL
    ]
