from __future__ import annotations

import os
import signal
import time

import pytest
import torch
import torch.distributed as dist

from collectives import CollectiveError, NotSupportedError
from collectives.connection import connect
from tests.distributed.pool import Failure, WorkerPool

pytestmark = pytest.mark.distributed


def failure_of(communicator_timeout: float, algorithm: str, count: int) -> str:
    communicator = connect(algorithm=algorithm, timeout=communicator_timeout)
    try:
        communicator.all_reduce(torch.ones(count))
    except CollectiveError as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def one_never_calls(rank: int, world_size: int) -> str:
    if rank == 1:
        connect(algorithm="ring")
        time.sleep(6)
        return ""
    return failure_of(1.0, "ring", 1000)


def test_every_rank_that_waits_names_the_rank_that_never_calls(pool: WorkerPool) -> None:
    results = pool.run(one_never_calls, 3)

    for result in (results[0], results[2]):
        assert result.startswith("CollectiveTimeoutError")
        assert "rank 1 did not take part" in result


def one_gives_another_size(rank: int, world_size: int) -> str:
    return failure_of(1.0, "ring", 1000 if rank != 2 else 999)


def test_every_rank_names_the_rank_with_another_size(pool: WorkerPool) -> None:
    for result in pool.run(one_gives_another_size, 3):
        assert result.startswith("MismatchError")
        assert "rank 2 called something else" in result


def one_is_killed(rank: int, world_size: int) -> str:
    communicator = connect(algorithm="ring", timeout=2.0)
    communicator.barrier()
    if rank == 0:
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        while True:
            communicator.all_reduce(torch.ones(50_000))
    except CollectiveError as error:
        return str(error)


def test_survivors_name_the_rank_that_was_killed(pool: WorkerPool) -> None:
    outcomes = pool.run_outcomes(one_is_killed, 3)

    assert isinstance(outcomes[0], Failure)
    for outcome in outcomes[1:]:
        assert "rank 0 did not take part" in outcome


def unknown_backend(rank: int, world_size: int) -> str:
    dist.destroy_process_group()
    try:
        connect(algorithm="ring")
    except NotSupportedError as error:
        return str(error)
    return "no error"


def test_without_a_process_group_the_caller_is_told_to_make_one(pool: WorkerPool) -> None:
    assert "init_process_group" in pool.run(unknown_backend, 1)[0]
