"""Refusals: what a process has once and ranks cannot have each for themselves.

- Threads that answer remote calls: they have no virtual time.
- Handlers of signals, which Python lets only its main thread install: a notice says so.
- Default arguments of torch's functions: a module that is imported while there is a process group
  keeps that of the rank that happened to import it, for all ranks and for good.
"""

from __future__ import annotations

import inspect
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch.distributed
import torch.distributed.nn.functional  # the module above all others that keeps a group
import torch.distributed.rpc

from collectives.errors import NotSupportedError
from collectives.virtual.isolation.patching import Replacement
from collectives.virtual.notices import Notices
from sim.cluster import Cluster

_c10d: Any = torch.distributed.distributed_c10d


def replacements() -> Iterator[Replacement]:
    """Return what stands in torch while ranks run."""
    yield torch.distributed.rpc, "init_rpc", _among_processes_only(torch.distributed.rpc.init_rpc)
    yield _c10d._WorldMeta, "WORLD", _unseen_by_imports(_c10d._WorldMeta.WORLD)
    yield signal, "signal", _unhandled(signal.signal)


def _among_processes_only(init_rpc: Callable[..., Any]) -> Callable[..., Any]:
    def init(*args: Any, **options: Any) -> Any:
        if Cluster.current() is not None:
            raise NotSupportedError(
                "torch.distributed.rpc answers from threads of its own, which have no virtual time; "
                "start the script with torchrun"
            )
        return init_rpc(*args, **options)

    return init


def _unhandled(install: Callable[..., Any]) -> Callable[..., Any]:
    def keep(number: int, handler: Any) -> Any:
        rank_thread = Cluster.current()
        if rank_thread is None:
            return install(number, handler)
        Notices.of(rank_thread.cluster).add(
            "signals go to the run, not to ranks, whose handlers are left out", signal.Signals(number).name
        )
        return signal.getsignal(number)

    return keep


def _unseen_by_imports(world: property) -> property:
    """Return the property ``group.WORLD``, which is None for torch's own modules as they are imported."""
    assert world.fget is not None
    get = world.fget

    def seen(cls: type) -> Any:
        frame = sys._getframe(1)
        is_function = frame.f_code.co_flags & inspect.CO_OPTIMIZED
        if not is_function and str(frame.f_globals.get("__name__")).startswith("torch."):
            return None
        return get(cls)

    return property(seen, world.fset)
