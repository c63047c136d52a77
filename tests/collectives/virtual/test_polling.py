"""Ranks that ask over and over whether something is completed."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from collectives.virtual import Roofline, run
from sim.errors import DeadlockError


def test_a_host_that_asks_for_its_gpu_comes_to_the_end_of_a_call() -> None:
    def ask_until_it_is_there(rank: int) -> float:
        dist.init_process_group("gloo")
        total = torch.ones(2)
        work = dist.all_reduce(total, async_op=True)
        while not work.is_completed():
            pass
        return float(total.sum())

    assert run(ask_until_it_is_there, 2, compute=Roofline("h100")).results == [4.0, 4.0]


@pytest.mark.parametrize("compute", [None, Roofline("h100")])
def test_who_asks_for_what_never_comes_is_in_a_deadlock(compute: Roofline | None) -> None:
    def ask(rank: int) -> None:
        dist.init_process_group("gloo")
        if rank == 0:
            work = dist.all_reduce(torch.ones(2), async_op=True)
            while not work.is_completed():
                pass

    with pytest.raises(DeadlockError, match=r"rank 0: waits since .* for all_reduce #0"):
        run(ask, 2, compute=compute)
