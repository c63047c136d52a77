"""Refusals: what a process has once and ranks cannot have each for themselves.

- Processes, but for workers of a DataLoader.  A process that is forked off a rank thread is a copy of that
  rank alone; the others are not in it.  So a worker, which only loads data, works as it would anywhere: at
  the fork no other rank runs, and a rank waits for its workers in real time, which is none in virtual time.
  Anything else would expect ranks, or communicate, in a process that no cluster knows.
- Threads that answer remote calls: they have no virtual time.
- Handlers of signals, which Python lets only its main thread install: a notice says so.
- Default arguments of torch's functions: a module that is imported while there is a process group
  keeps that of the rank that happened to import it, for all ranks and for good.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from typing import Any
from weakref import WeakSet

import torch.distributed
import torch.distributed.nn.functional  # the module above all others that keeps a group
import torch.distributed.rpc
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from collectives.errors import NotSupportedError
from collectives.virtual.isolation.patching import Replacement, on_ranks, replaced
from collectives.virtual.notices import Notices
from sim.cluster import Cluster, RankThread

_c10d: Any = torch.distributed.distributed_c10d


def replacements() -> Iterator[Replacement]:
    """Return what stands in torch while ranks run."""
    yield torch.distributed.rpc, "init_rpc", on_ranks(torch.distributed.rpc.init_rpc, _init_rpc)
    yield _c10d._WorldMeta, "WORLD", _unseen_by_imports(_c10d._WorldMeta.WORLD)
    yield signal, "signal", on_ranks(signal.signal, _signal)


def _init_rpc(rank_thread: RankThread, *args: Any, **options: Any) -> None:
    raise NotSupportedError(
        "torch.distributed.rpc answers from threads of its own, which have no virtual time; start the script "
        "with torchrun"
    )


def _signal(rank_thread: RankThread, number: int, handler: Any) -> Any:
    Notices.of(rank_thread.cluster).add(
        "signals go to the run, not to ranks, whose handlers are left out", signal.Signals(number).name
    )
    return signal.getsignal(number)


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


_starting_workers = threading.local()


@contextlib.contextmanager
def only_workers() -> Iterator[None]:
    """Let rank threads start no processes but workers of a DataLoader, which end with the run."""
    loading: WeakSet[Any] = WeakSet()
    start = _MultiProcessingDataLoaderIter.__init__

    def start_workers(rank_thread: RankThread, iterator: Any, *args: Any, **options: Any) -> None:
        loading.add(iterator)
        _starting_workers.value = True
        try:
            with warnings.catch_warnings():  # that a process with threads is forked
                warnings.simplefilter("ignore", DeprecationWarning)
                start(iterator, *args, **options)
        finally:
            _starting_workers.value = False

    replacements: list[Replacement] = [
        (os, "fork", _guarded(os.fork, "os.fork")),
        (BaseProcess, "start", _guarded(BaseProcess.start, "multiprocessing")),
        (_MultiProcessingDataLoaderIter, "__init__", on_ranks(start, start_workers)),
    ]
    try:
        with replaced(replacements):
            yield
    finally:
        for iterator in list(loading):
            iterator._shutdown_workers()


def _guarded(original: Callable[..., Any], name: str) -> Callable[..., Any]:
    @functools.wraps(original)
    def start(*args: Any, **options: Any) -> Any:
        if Cluster.current() is not None and not getattr(_starting_workers, "value", False):
            raise NotSupportedError(
                f"{name} starts a process from a rank, which is a thread here; a script can have workers of "
                "a DataLoader, and its ranks are started for it; leave out what asks for others, such as "
                "num_proc= of datasets, or run it for real: testbed run --processes N"
            )
        return original(*args, **options)

    return start
