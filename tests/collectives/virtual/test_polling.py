from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

from collectives.virtual import Roofline, run
from sim.errors import RankError


def ask_until_it_is_there(rank: int) -> float:
    dist.init_process_group("gloo")
    total = torch.ones(2)
    work = dist.all_reduce(total, async_op=True)
    while not work.is_completed():
        pass
    if rank:
        dist.send(total, 0)
        return 0.0
    received = torch.zeros(2)
    receive = dist.irecv(received, 1)
    while not receive.is_completed():
        pass
    return float(received.sum())


@pytest.mark.parametrize("transport_model", ["ideal", "gloo", "nccl"])
def test_who_asks_until_a_work_is_completed_waits_for_it(transport_model: str) -> None:
    outcome = run(ask_until_it_is_there, 2, transport_model=transport_model)

    assert outcome.results == [4.0, 0.0]
    assert outcome.seconds < 1e-3


def test_so_does_a_host_that_asks_for_its_gpu() -> None:
    assert run(ask_until_it_is_there, 2, compute=Roofline("h100")).results == [4.0, 0.0]


def test_who_asks_for_what_never_comes_is_told_after_half_an_hour() -> None:
    def ask(rank: int) -> Any:
        dist.init_process_group("gloo")
        if rank == 0:
            work = dist.all_reduce(torch.ones(2), async_op=True)
            while not work.is_completed():
                pass

    with pytest.raises(RankError, match="whether all_reduce #0"):
        run(ask, 2)
