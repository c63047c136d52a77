"""Threads that a rank starts are the rank's: its process groups, devices and clock, and one turn for all.

All that a process has once is swapped between ranks while none of its threads may run (`sim.cluster`), so a
thread that ran freely would find what is another rank's.  The threads of one rank therefore take turns
(`collectives.virtual.isolation.turns`): one runs until it waits for another in Python (a condition, and so
an event, a queue, a semaphore or a future of a pool; the end of a thread).  So a run repeats exactly, and
work of such threads takes its time one after another.

So are locks that a rank makes.  What is waited for in C is not seen: a lock made before the run that another
thread of the rank holds while it waits.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from types import FrameType
from typing import Any

import torch.overrides
import torch.utils._python_dispatch as dispatch

from collectives.virtual.gpu.accelerator import CudaDevices
from collectives.virtual.isolation.own_locks import OwnLock, OwnRLock
from collectives.virtual.isolation.patching import Replacement, on_ranks, replaced
from collectives.virtual.isolation.turns import OwnThreads, threads_here
from collectives.virtual.streams.gpu import current_gpu
from sim.cluster import Cluster, RankThread

_overrides: Any = torch.overrides
_dispatch: Any = dispatch


@contextmanager
def threads_of_ranks() -> Iterator[None]:
    """Let threads that rank threads start be those of their rank while the body runs."""
    with replaced(_replacements()):
        yield


def _replacements() -> Iterator[Replacement]:
    start, join, alive = threading.Thread.start, threading.Thread.join, threading.Thread.is_alive
    wait, simple_queue = threading.Condition.wait, queue.SimpleQueue
    enter, leave = threading.Condition.__enter__, threading.Condition.__exit__
    pass_, submit = threading.Barrier.wait, ThreadPoolExecutor.submit
    process = os.getpid()

    def start_own(thread: threading.Thread) -> None:
        rank_thread = Cluster.current()
        if rank_thread is None or os.getpid() != process:
            return start(thread)
        if _starts_workers(sys._getframe(1)):
            threads = threads_here()
            with nullcontext() if threads is None else threads.really_waiting():
                return start(thread)
        rank_thread.cluster.shared.setdefault(OwnThreads, {})
        of_rank = rank_thread.cluster.shared[OwnThreads]
        if rank_thread.rank not in of_rank:
            of_rank[rank_thread.rank] = OwnThreads(rank_thread)
        of_rank[rank_thread.rank].start(thread, start, _surroundings(rank_thread))
        return None

    def join_own(thread: threading.Thread, timeout: float | None = None) -> None:
        own, threads = getattr(thread, "own_thread", None), threads_here()
        if own is not None and threads is not None:
            if not threads.wait_until(lambda: own.is_over, timeout):
                return None
            threads.ended(own)
        return join(thread, timeout)

    def is_alive(thread: threading.Thread) -> bool:
        threads = threads_here()
        if threads is not None and hasattr(thread, "own_thread"):
            threads.let_others_run()
            if thread.own_thread.is_over:
                threads.ended(thread.own_thread)
            return not thread.own_thread.is_over
        return alive(thread)

    def wait_own(condition: Any, timeout: float | None = None) -> bool:
        threads = threads_here()
        if threads is None or threads.is_starting or (timeout is not None and timeout <= 0):
            return wait(condition, timeout)
        return _wait(condition, threads, timeout)

    def enter_own(condition: Any) -> Any:
        entered, threads = enter(condition), threads_here()
        if threads is not None:
            threads.entered(condition._lock)
        return entered

    def leave_own(condition: Any, *raised: Any) -> None:
        threads = threads_here()
        if threads is not None:
            threads.left(condition._lock)
        return leave(condition, *raised)

    def pass_barrier(barrier: Any, timeout: float | None = None) -> int:
        threads = threads_here()
        if threads is not None:
            threads.entered(barrier._cond._lock)
            threads.left(barrier._cond._lock)  # who waits there tells, too, how far it is
        return pass_(barrier, timeout)

    def submit_own(pool: ThreadPoolExecutor, /, *args: Any, **kwargs: Any) -> Any:
        future, threads = submit(pool, *args, **kwargs), threads_here()
        if threads is not None:
            threads.pools.add(pool)
        return future

    def make_lock(kind: Callable[[], Any], own: Callable[[], Any]) -> Callable[[], Any]:
        def make() -> Any:
            caller = str(sys._getframe(1).f_globals.get("__name__"))
            return kind() if Cluster.current() is None or caller.startswith("collectives.") else own()

        return make

    yield threading, "Lock", make_lock(threading.Lock, OwnLock)
    yield threading, "RLock", make_lock(threading.RLock, OwnRLock)
    yield threading.Thread, "start", start_own
    yield threading.Thread, "join", join_own
    yield threading.Thread, "is_alive", is_alive
    yield threading.Condition, "wait", wait_own
    yield threading.Condition, "__enter__", enter_own
    yield threading.Condition, "__exit__", leave_own
    yield threading.Barrier, "wait", pass_barrier
    yield ThreadPoolExecutor, "submit", submit_own
    yield queue, "SimpleQueue", on_ranks(simple_queue, lambda *_: queue._PySimpleQueue())  # type: ignore[attr-defined]


@contextmanager
def own_threads(rank_thread: RankThread) -> Iterator[None]:
    """Let the threads that a rank starts while the body runs end with it; if it fails, at once.

    As at the end of a process, pools that nobody has shut down are, and threads that are no daemons are
    waited for.

    Raises:
        CollectiveError: a thread that is no daemon waits for what will never come.
    """
    threading.current_thread()._daemonic = False  # type: ignore[attr-defined]  # threads inherit it
    try:
        yield
        threads = _threads_of(rank_thread)
        if threads is not None:
            threads.join_all()
    finally:
        threads = _threads_of(rank_thread)
        if threads is not None:
            threads.end()


def _threads_of(rank_thread: RankThread) -> OwnThreads | None:
    of_rank: dict[int, OwnThreads] = rank_thread.cluster.shared.get(OwnThreads, {})
    return of_rank.get(rank_thread.rank)


def _wait(condition: Any, threads: OwnThreads, timeout: float | None) -> bool:
    """Wait for *condition*, as `threading.Condition.wait` does, while other threads of the rank run."""
    if not condition._is_owned():
        raise RuntimeError("cannot wait on un-acquired lock")
    waiter = threading.Lock()
    waiter.acquire()
    condition._waiters.append(waiter)
    saved, came = condition._release_save(), False
    try:
        thing = getattr(condition._lock, "thing", None)
        came = threads.wait_until(lambda: waiter.acquire(False), timeout, thing)
        return came
    finally:
        condition._acquire_restore(saved)
        threads.entered(condition._lock)
        if not came and waiter in condition._waiters:
            condition._waiters.remove(waiter)


def _surroundings(rank_thread: RankThread) -> Callable[[], AbstractContextManager[None]]:
    """Return what makes another thread the rank's: its clock, its devices, and the modes of the run."""
    gpu, devices = current_gpu(), CudaDevices.here()
    functions = [mode for mode in _overrides._get_current_function_mode_stack() if _is_ours(mode)]
    dispatched = [mode for mode in _dispatch._get_current_dispatch_mode_stack() if _is_ours(mode)]

    @contextmanager
    def entered() -> Iterator[None]:
        with ExitStack() as stack:
            stack.enter_context(rank_thread.adopting())
            if gpu is not None:
                gpu.enter()
                stack.callback(gpu.leave)
            if devices is not None:
                stack.enter_context(devices.entered())
            for mode in functions:
                _overrides._push_mode(mode)
                stack.callback(_overrides._pop_mode)
            for mode in dispatched:
                _dispatch._push_mode(mode)
                stack.callback(_dispatch._pop_mode)
            yield

    return entered


def _starts_workers(frame: FrameType) -> bool:
    """Return whether a thread is one that only moves data of other processes, which are waited for in C."""
    name = str(frame.f_globals.get("__name__"))
    return name.startswith(("multiprocessing.", "torch.utils.data.", "torch.multiprocessing."))


def _is_ours(mode: Any) -> bool:
    return type(mode).__module__.startswith("collectives.")
