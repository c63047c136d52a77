"""The pool runs functions on Gloo ranks and names the rank that fails."""

import os
import time

import pytest
import torch
import torch.distributed as dist

from tests.distributed.pool import Failure, WorkerError

pytestmark = pytest.mark.distributed


def sum_of_ranks(rank: int, world_size: int, offset: float) -> float:
    tensor = torch.tensor([rank + offset])
    dist.all_reduce(tensor)
    return tensor.item()


def raise_on_rank_one(rank: int, world_size: int) -> None:
    if rank == 1:
        raise ValueError("a wrong value")


def die_on_rank_one(rank: int, world_size: int) -> int:
    if rank == 1:
        os._exit(3)
    return rank


def sleep_on_rank_one(rank: int, world_size: int) -> None:
    if rank == 1:
        time.sleep(3600)


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_a_function_runs_in_a_default_group_of_that_world_size(pool, world_size):
    results = pool.run(sum_of_ranks, world_size, 0.5)

    assert results == [sum(range(world_size)) + 0.5 * world_size] * world_size


def test_a_rank_that_raises_is_named_with_its_traceback(pool):
    with pytest.raises(WorkerError, match=r"rank 1 raised[\s\S]*a wrong value"):
        pool.run(raise_on_rank_one, 2)

    assert pool.run(sum_of_ranks, 2, 0.0) == [1.0, 1.0]


def test_a_rank_that_dies_is_told_from_those_that_return(pool):
    outcomes = pool.run_outcomes(die_on_rank_one, 2)

    assert outcomes == [0, Failure(1, "died", "exit code 3")]


def test_a_rank_that_does_not_return_times_out(pool):
    pool.run(sum_of_ranks, 2, 0.0)  # so both have been started

    with pytest.raises(WorkerError, match="rank 1 timed out"):
        pool.run(sleep_on_rank_one, 2, timeout=1.0)
