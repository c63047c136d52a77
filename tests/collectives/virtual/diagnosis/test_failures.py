"""Failures of ranks: errors with their traceback, and deadlocks with who waits for whom."""

from __future__ import annotations

import threading
import traceback
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from collectives.virtual import run
from sim.errors import DeadlockError, RankError
from tests.collectives.virtual.clusters import script
from tests.given import switch


def test_an_error_inside_a_rank_shows_that_ranks_traceback(tmp_path: Path) -> None:
    path = script(
        tmp_path,
        """
        import torch.distributed as dist
        dist.init_process_group()

        def part_of_the_script():
            raise ValueError("bad label")

        if dist.get_rank() == 2:
            part_of_the_script()
        dist.barrier()
        """,
    )

    with pytest.raises(RankError, match="rank 2 raised ValueError: bad label") as caught:
        run(path, network=switch(4))

    shown = "".join(traceback.format_exception(caught.value))
    assert "part_of_the_script" in shown
    assert 'raise ValueError("bad label")' in shown


def test_a_rank_that_ends_early_is_reported_with_who_waits_for_it_in_what() -> None:
    def work(rank: int) -> None:
        dist.init_process_group()
        if rank != 1:
            dist.all_reduce(torch.ones(8))

    with pytest.raises(DeadlockError) as caught:
        run(work, network=switch(4))

    text = str(caught.value)
    assert "3 of 4 ranks" in text
    assert "rank 1: has finished" in text
    assert "all_reduce #0 (ring" in text
    assert (
        "rank 2: waits since 0 ps for all_reduce #0 (ring, 8 × float32, sum): waits for rank 1 to call"
        in text
    )


class HookError(Exception):
    pass


def test_an_error_in_a_backward_hook_unwinds_ranks_that_wait_inside_their_backward_pass() -> None:
    def fail(parameter: torch.Tensor) -> None:
        raise HookError

    def work(rank: int) -> None:
        dist.init_process_group()
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
        ddp = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.0001)
        if rank == 2:
            model[0].weight.register_post_accumulate_grad_hook(fail)
        ddp(torch.ones(1, 8)).sum().backward()

    with pytest.raises(RankError, match="rank 2 raised HookError") as caught:
        run(work, network=switch(3))

    assert isinstance(caught.value.__cause__, HookError)
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("rank ")]


def test_a_deadlock_inside_a_backward_pass_is_found_and_unwound() -> None:
    def work(rank: int) -> None:
        dist.init_process_group()
        ddp = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
        for _ in range(3 if rank else 2):
            ddp(torch.ones(1, 8)).sum().backward()

    with pytest.raises(DeadlockError, match="rank 0: has finished"):
        run(work, network=switch(3))

    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("rank ")]


def test_ranks_that_call_different_collectives_are_reported_with_their_calls() -> None:
    def work(rank: int) -> None:
        dist.init_process_group()
        dist.all_reduce(torch.ones(8 if rank else 9))

    with pytest.raises(DeadlockError) as caught:
        run(work, network=switch(3))

    assert "9 × float32" in str(caught.value)
    assert "8 × float32" in str(caught.value)
