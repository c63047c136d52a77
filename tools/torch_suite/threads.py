"""Ranks of torch's suite as threads in virtual time, on one node with a GPU for each; a driver.

A test runs for NCCL, or for Gloo if torch has it for Gloo alone, or for MPI.  Each is a process of its own,
so that one that hangs can be ended.  What the suite does through files named by process, its barrier, is done
in virtual time.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import tempfile
import unittest
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from torch.testing._internal import common_distributed, common_utils

from collectives.virtual import run
from collectives.virtual.store import VirtualStore
from sim.cluster import Cluster
from tools.torch_suite import driver, suite

NETWORK = "dgx-h100"
SECONDS = 300
"""Within which a test ends."""

WIDTH = 32
"""Of images and layers in the test of uneven inputs; its convolutions take 12 away."""

_SKIPS = {skip.exit_code: skip.message for skip in common_distributed.TEST_SKIPS.values()}


def gate_of(test: str) -> str:
    """Return the backend that decorators see: the first of three for which torch has the test."""
    for gate in ("nccl", "gloo", "mpi") if test else ():
        with as_if_there_were_gpus():
            module = suite.load(gate, int(os.environ["WORLD_SIZE"]))
        if not hasattr(getattr(module.DistributedTest._DistTestBase, test), "__unittest_skip__"):
            return gate
    return "nccl"


@contextmanager
def as_if_there_were_gpus() -> Iterator[None]:
    """Let decorators find what rank threads find when they run: GPUs and NCCL."""
    num_devices = lambda: 8  # noqa: E731
    with ExitStack() as patches:
        for owner, name, value in (
            (torch.cuda, "is_available", lambda: True),
            (torch.cuda, "device_count", num_devices),
            (torch.cuda.nccl, "version", lambda: (2, 28, 0)),
            (dist, "is_nccl_available", lambda: True),
            (dist.distributed_c10d, "is_nccl_available", lambda: True),
            (common_utils, "IS_LINUX", True),
        ):
            patches.enter_context(mock.patch.object(owner, name, value))
        yield


@functools.cache
def case_of(module: ModuleType) -> type[unittest.TestCase]:
    """Return a class of tests, each of which runs that of the suite on all ranks, in a process of its own."""
    if module.BACKEND == "mpi":
        module.BACKEND = "gloo"  # type: ignore[attr-defined]  # no torch at hand can make a group of MPI
    base = module.DistributedTest._DistTestBase
    module.DDPUnevenTestInput = _made_small(module.DDPUnevenTestInput)  # type: ignore[attr-defined]

    def forked(name: str) -> Any:
        @functools.wraps(getattr(base, name))
        def test(case: unittest.TestCase) -> None:
            _in_a_process(module, name)

        return test

    return type("Threads", (unittest.TestCase,), {name: forked(name) for name in suite.tests_of(module)})


def _made_small(made: Callable[..., Any]) -> Callable[..., Any]:
    """Return *made*, which makes a case of uneven inputs, for models small enough to train on a CPU.

    Torch's images have 1000 x 1000 pixels, and a layer a million weights, which is hours for one core.
    What is tested is which ranks take part.
    """

    def make(*, model: Any, inp: Any, **fields: Any) -> Any:
        if isinstance(model, torch.nn.Linear):
            model, inp = torch.nn.Linear(WIDTH, WIDTH, bias=False), inp[:, :WIDTH]
        elif isinstance(inp, torch.Tensor) and inp.dim() == 4:
            inp = inp[..., :WIDTH, :WIDTH]
        return made(model=model, inp=inp, **fields)

    return make


def _in_a_process(module: ModuleType, name: str) -> None:
    """Run the test *name* in a fork of this process, and raise here what it raises there."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    process = multiprocessing.get_context("fork").Process(target=_send_outcome, args=(module, name, theirs))
    process.start()
    theirs.close()
    try:
        result, text = ours.recv() if ours.poll(SECONDS) else ("failed", f"it hangs: no end in {SECONDS} s")
    except EOFError:
        result, text = "failed", "its process died"
    process.kill()
    process.join()

    if result == "skipped":
        raise unittest.SkipTest(text)
    if result == "failed":
        raise AssertionError(text)


def _send_outcome(module: ModuleType, name: str, connection: Connection) -> None:
    try:
        skipped = run_on_threads(module, name)
    except BaseException as error:
        cause = error.__cause__ or error
        connection.send(("failed", f"{error}\n{type(cause).__name__}: {cause}"))
    else:
        connection.send(("passed", "") if skipped is None else ("skipped", skipped))


def run_on_threads(module: Any, name: str) -> str | None:
    """Run the test *name* of the suite *module* on rank threads; return why it was skipped, if it was."""
    world_size = int(os.environ["WORLD_SIZE"])
    with tempfile.TemporaryDirectory() as folder:
        for part in ("barrier", "test_dir", "init_dir"):
            Path(folder, part).mkdir()
        os.environ["TEMP_DIR"] = folder
        tempfile.tempdir = folder
        module.Barrier.sync, module.os = _VirtualBarrier(), _OsOfRank()
        outcome = run(lambda rank: _on_rank(module, name, rank, folder), world_size, NETWORK)
    reasons = [reason for reason in outcome.results if reason is not None]
    return reasons[0] if reasons else None


def _on_rank(module: Any, name: str, rank: int, folder: str) -> str | None:
    """Do what ``TestDistBackend._run`` does in the process of a rank."""
    kind = type("OnRankThread", (module.TestDistBackend, module.DistributedTest._DistTestBase), {})
    case = kind(name)
    case.rank, case.file_name = rank, str(Path(folder, "init_dir", "shared"))
    seconds = module.CUSTOM_PG_TIMEOUT.get(name, module.default_pg_timeout)
    world_size = int(os.environ["WORLD_SIZE"])
    dist.init_process_group(
        module.BACKEND,
        init_method=case.init_method,
        world_size=world_size,
        rank=rank,
        timeout=timedelta(seconds=seconds),
    )
    module.Barrier.sync()
    common_utils.set_rng_seed()

    try:
        getattr(case, name)()
    except unittest.SkipTest as skip:
        return str(skip)
    except SystemExit as end:
        if end.code not in _SKIPS:
            raise
        return _SKIPS[end.code]
    module.Barrier.sync(world_size)
    if dist.is_initialized():
        dist.destroy_process_group()
    return None


class _OsOfRank:
    """The module ``os`` as the suite finds it: a process for each rank, and files stay until the test ends.

    The suite removes a file while other ranks may still read it.
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def getpid(self) -> int:
        """Return a number that no other rank has."""
        rank_thread = Cluster.current()
        return os.getpid() if rank_thread is None else rank_thread.rank

    def remove(self, path: str) -> None:
        """Leave the file where it is; its folder goes with the test."""


class _VirtualBarrier:
    """The suite's barrier, which needs no process group: the n-th call of a rank meets that of the others."""

    def __init__(self) -> None:
        self._calls: Counter[int] = Counter()

    def __call__(self, wait_for: int | None = None, timeout: float = 10) -> None:
        rank_thread = Cluster.current()
        assert rank_thread is not None
        self._calls[rank_thread.rank] += 1
        key = f"barrier of the suite/{self._calls[rank_thread.rank]}"
        store = VirtualStore.of(rank_thread)
        if store.add(key, 1) == (wait_for or dist.get_world_size()):
            store.set(f"{key}/all", "")
        store.wait([f"{key}/all"])


def main() -> None:
    """Run what the command line asks for, as if there were GPUs when the suite is imported."""
    common_distributed.TEST_CUDA = True  # type: ignore[attr-defined]  # what decorators ask when a test is called
    driver.main(gate_of, case_of, while_loading=as_if_there_were_gpus)


if __name__ == "__main__":
    torch.set_num_threads(1)  # threads would not survive a fork
    main()
