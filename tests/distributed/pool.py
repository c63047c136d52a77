"""A pool of worker processes in which several-process tests run, started once per session.

Importing torch costs a process two seconds, so one process imports it, from which all workers are forked
while it has one thread; and workers are kept and reused.  A test hands the pool a module-level
function ``fn(rank, world_size, *args)``; the pool runs it on the first ``world_size`` workers inside a fresh
default group of exactly that many ranks, over Gloo if no other backend is asked for, and returns the results
in rank order:

    def sum_of_ranks(rank: int, world_size: int) -> float:
        tensor = torch.tensor([float(rank)])
        dist.all_reduce(tensor)
        return tensor.item()

    def test_an_all_reduce_sums_over_the_ranks(pool: WorkerPool) -> None:
        assert pool.run(sum_of_ranks, 3) == [3.0, 3.0, 3.0]

A rank that raises, dies or does not come back in time fails the run by name; its worker is replaced,
because nobody knows what it left behind.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import multiprocessing
import os
import pickle
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from typing import Any
from unittest.mock import patch

GRACE_SECONDS = 5.0
"""That the others have when a rank has raised where none should."""
MEETING_SECONDS = 60.0
"""That ranks have to meet, however little they have to return."""


_late_groups: deque[list[Any]] = deque(maxlen=4)
"""Process groups of the last runs in this process.

Gloo's threads let go of what Python gave them, for which they need the interpreter's lock, just after a call
is over; a group that is collected at that moment would wait for them with the lock in its hands.
"""


class WorkerError(AssertionError):
    """A rank raised, died or timed out; the message holds its traceback."""


@dataclass(frozen=True)
class Failure:
    """What a rank came to that returned no result: ``raised``, ``died`` or ``timed out``."""

    rank: int
    kind: str
    detail: str

    def __str__(self) -> str:
        return f"rank {self.rank} {self.kind}: {self.detail}"


class WorkerPool:
    """Reusable Gloo processes; use as a context manager, or call `close`."""

    def __init__(self) -> None:
        import torch.distributed as dist

        self._store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        self._workers = []
        self._num_runs = 0

    def run(
        self, fn: Callable[..., Any], world_size: int, *args, timeout: float = 60.0, backend: str = "gloo"
    ) -> list[Any]:
        """Return ``fn(rank, world_size, *args)`` of every rank.

        Raises:
            WorkerError: a rank raised, died, or did not return within *timeout* seconds.
        """
        outcomes = self._run(fn, world_size, args, timeout, backend, GRACE_SECONDS)
        failures = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
        if failures:
            raise WorkerError("\n".join(str(failure) for failure in failures))
        return outcomes

    def run_outcomes(
        self, fn: Callable[..., Any], world_size: int, *args, timeout: float = 60.0, backend: str = "gloo"
    ) -> list[Any]:
        """Return every rank's result, or its `Failure`; for tests in which a rank shall fail."""
        return self._run(fn, world_size, args, timeout, backend, timeout)

    def _run(self, fn: Callable[..., Any], world_size: int, *how) -> list[Any]:
        """Return every rank's result, or its `Failure`.

        Where Gloo cannot connect the processes, which happens before any code of ours, it is tried once more.
        """
        outcomes = self._run_once(fn, world_size, *how)
        if any(isinstance(own, Failure) and "connectFullMesh failed" in own.detail for own in outcomes):
            return self._run_once(fn, world_size, *how)
        return outcomes

    def _run_once(
        self,
        fn: Callable[..., Any],
        world_size: int,
        args: tuple[Any, ...],
        timeout: float,
        backend: str,
        grace: float,
    ) -> list[Any]:
        while len(self._workers) < world_size:
            self._workers.append(_Worker(self._store.port))
        self._num_runs += 1
        workers = self._workers[:world_size]
        for rank, worker in enumerate(workers):
            group = (backend, f"run{self._num_runs}", rank, world_size, max(timeout, MEETING_SECONDS))
            worker.connection.send((group, pickle.dumps((fn, args))))
        outcomes = self._collect(workers, timeout, grace)
        for worker, outcome in zip(workers, outcomes, strict=True):
            if isinstance(outcome, Failure):
                worker.stop()
                self._workers.remove(worker)
        return outcomes

    def _collect(self, workers: list[_Worker], timeout: float, grace: float) -> list[Any]:
        outcomes = {}
        deadline = time.monotonic() + timeout
        while len(outcomes) < len(workers):
            pending = {worker.connection: rank for rank, worker in enumerate(workers) if rank not in outcomes}
            arrived = wait(list(pending), timeout=max(0.0, deadline - time.monotonic()))
            for connection in arrived:
                rank = pending[connection]
                outcomes[rank] = workers[rank].receive(rank)
                if isinstance(outcomes[rank], Failure) and outcomes[rank].kind == "raised":
                    deadline = min(deadline, time.monotonic() + grace)
            if not arrived:
                for rank in pending.values():
                    workers[rank].show_stack()
                    outcomes[rank] = Failure(rank, "timed out", "its stack is on stderr")
        return [outcomes[rank] for rank in range(len(workers))]

    def close(self) -> None:
        """End all workers."""
        for worker in self._workers:
            worker.stop()
        self._workers.clear()

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class _Worker:
    """One process and the socket to it."""

    def __init__(self, store_port: int) -> None:
        forking = multiprocessing.get_context("forkserver")
        forking.set_forkserver_preload(["torch.distributed.nn.functional", "torch.distributed.optim"])
        self.connection, theirs = forking.Pipe()
        self._process = forking.Process(target=_serve, args=(theirs, store_port))
        with theirs, patch.dict(os.environ, GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1"):
            self._process.start()  # the first time, what forks starts with these variables, too

    def receive(self, rank: int):
        try:
            succeeded, payload = self.connection.recv()
        except (EOFError, ConnectionResetError):
            self._process.join()
            return Failure(rank, "died", f"exit code {self._process.exitcode}")
        return pickle.loads(payload) if succeeded else Failure(rank, "raised", payload)

    def show_stack(self) -> None:
        os.kill(self._process.pid, signal.SIGUSR1)

    def stop(self) -> None:
        self.connection.close()
        self._process.join(0.2)
        self._process.kill()
        self._process.join()


def _serve(connection: Connection, store_port: int) -> None:
    """Run what the pool sends until it closes the connection."""
    _die_with_parent()
    faulthandler.register(signal.SIGUSR1)
    import torch
    import torch.distributed as dist
    import torch.distributed.nn.functional  # its defaults capture the group that there is on import

    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", store_port, is_master=False)
    gc.freeze()
    num_modules = len(sys.modules)
    while True:
        try:
            (backend, prefix, rank, world_size, timeout), call = connection.recv()
        except EOFError:
            return
        try:
            fn, arguments = pickle.loads(call)
            with _default_group(backend, dist.PrefixStore(prefix, store), rank, world_size, timeout):
                result = fn(rank, world_size, *arguments)
            answer = (True, pickle.dumps(result))
        except BaseException:
            answer = (False, traceback.format_exc())
        gc.collect()  # what a run leaves must not be destroyed in a later one's forked children
        if len(sys.modules) > num_modules:
            gc.freeze()  # what is imported stays; the next time it need not be looked through
            num_modules = len(sys.modules)
        connection.send(answer)


@contextlib.contextmanager
def _default_group(backend: str, store, rank: int, world_size: int, timeout: float) -> Iterator[None]:
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    dist.init_process_group(
        backend, store=store, rank=rank, world_size=world_size, timeout=timedelta(seconds=timeout)
    )
    try:
        yield
    finally:
        if dist.is_initialized():
            _late_groups.append(list(distributed_c10d._world.pg_map))
            dist.destroy_process_group()


def _die_with_parent() -> None:
    """Ask Linux to kill this process when the test session ends in any way."""
    if sys.platform == "linux":
        pr_set_pdeathsig = 1
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)
