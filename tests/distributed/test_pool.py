"""The pool runs functions on Gloo ranks and names the rank that fails."""

import os
import time

import pytest
import torch
import torch.distributed as dist

from tests.distributed.pool import Failure, WorkerError

pytestmark = pytest.mark.distributed


def sum_of_ranks(rank, world_size, offset):
    tensor = torch.tensor([rank + offset])
    dist.all_reduce(tensor)
    return tensor.item()


def raise_on_rank_one(rank, world_size):
    if rank == 1:
        raise ValueError("a wrong value")


def die_on_rank_one(rank, world_size):
    if rank == 1:
        os._exit(3)
    return rank


def sleep_on_rank_one(rank, world_size):
    if rank == 1:
        time.sleep(3600)


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_a_function_runs_in_a_default_group_of_that_world_size(pool, world_size):
    results = pool.run(sum_of_ranks, world_size, 0.5)

    assert results == [sum(range(world_size)) + 0.5 * world_size] * world_size


@pytest.mark.parametrize(
    ("work", "said", "patience"),
    [
        (raise_on_rank_one, r"rank 1 raised[\s\S]*a wrong value", {}),
        (sleep_on_rank_one, "rank 1 timed out", {"timeout": 1.0}),
    ],
)
def test_a_rank_that_raises_or_does_not_return_is_named_and_others_run_on(pool, work, said, patience):
    pool.run(sum_of_ranks, 2, 0.0)  # so both have been started

    with pytest.raises(WorkerError, match=said):
        pool.run(work, 2, **patience)

    assert pool.run(sum_of_ranks, 2, 0.0) == [1.0, 1.0]


def test_a_rank_that_dies_is_told_from_those_that_return(pool):
    outcomes = pool.run_outcomes(die_on_rank_one, 2)

    assert outcomes == [0, Failure(1, "died", "exit code 3")]
