"""Processes that a script starts from a rank thread: workers of a DataLoader, and no others.

A process that is forked off a rank thread is a copy of that rank alone; the others are not in it.  So a
worker, which only loads data, works as it would anywhere: at the fork no other rank runs, and a rank
waits for its workers in real time, which is none in virtual time.  Anything else would expect ranks, or
communicate, in a process that no cluster knows.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from typing import Any
from weakref import WeakSet

from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from collectives.errors import NotSupportedError
from collectives.virtual.isolation.patching import Replacement, replaced
from sim.cluster import Cluster

_starting_workers = threading.local()


@contextlib.contextmanager
def only_workers() -> Iterator[None]:
    """Let rank threads start no processes but workers of a DataLoader, which end with the run."""
    loading: WeakSet[Any] = WeakSet()
    start = _MultiProcessingDataLoaderIter.__init__
    replacements: list[Replacement] = [
        (os, "fork", _guarded(os.fork, "os.fork")),
        (BaseProcess, "start", _guarded(BaseProcess.start, "multiprocessing")),
        (_MultiProcessingDataLoaderIter, "__init__", _workers(start, loading)),
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


def _workers(original: Callable[..., None], loading: WeakSet[Any]) -> Callable[..., None]:
    @functools.wraps(original)
    def start(iterator: Any, *args: Any, **options: Any) -> None:
        if Cluster.current() is None:
            return original(iterator, *args, **options)
        loading.add(iterator)
        _starting_workers.value = True
        try:
            with warnings.catch_warnings():  # that a process with threads is forked
                warnings.simplefilter("ignore", DeprecationWarning)
                original(iterator, *args, **options)
        finally:
            _starting_workers.value = False

    return start
