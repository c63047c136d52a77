"""Time-outs of rank threads: in virtual time, for whom has chosen one; a standstill stays a deadlock."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d

from collectives.errors import CollectiveTimeoutError
from collectives.virtual import run
from sim.errors import DeadlockError
from sim.units import SECOND
from tests.collectives.virtual.clusters import rank_thread
from tests.given import switch


@pytest.mark.parametrize("transport_model", ["ideal", "gloo"])
def test_a_rank_waits_for_a_collective_as_long_as_its_group_wants_to(transport_model: str) -> None:
    def work(rank: int) -> Any:
        dist.init_process_group("gloo", timeout=timedelta(seconds=3))
        if rank == 1:
            rank_thread().charge_ps(10 * SECOND)
            return None
        with pytest.raises(CollectiveTimeoutError, match=r" Timed out waiting 3000ms .* all_reduce #0"):
            dist.all_reduce(torch.ones(3))
        return rank_thread().now_ps()

    assert run(work, network=switch(2), transport_model=transport_model).results == [3 * SECOND, None]


def test_a_wait_may_have_a_time_of_its_own_and_the_call_goes_on_after_it() -> None:
    def work(rank: int) -> Any:
        dist.init_process_group("gloo")
        if rank == 1:
            rank_thread().charge_ps(2 * SECOND)
        tensor = torch.ones(3)
        call = dist.all_reduce(tensor, async_op=True)
        if rank == 0:
            with pytest.raises(CollectiveTimeoutError, match="caught collective operation timeout"):
                call.wait(timedelta(seconds=1))
            assert rank_thread().now_ps() == SECOND
        return dist.barrier(), dist.get_rank()

    assert run(work, network=switch(2)).results == [(None, 0), (None, 1)]


def test_whoever_gives_up_in_a_standstill_gets_the_deadlock_if_nobody_catches_it() -> None:
    def work(rank: int) -> None:
        dist.init_process_group("gloo", timeout=timedelta(seconds=3))
        if rank == 0:
            dist.barrier()

    with pytest.raises(DeadlockError, match="rank 1 did not take part: finished") as caught:
        run(work, network=switch(2))

    assert isinstance(caught.value.__cause__, CollectiveTimeoutError)


def test_waiting_for_keys_of_the_store_ends_after_the_time_that_is_given() -> None:
    def work(rank: int) -> Any:
        dist.init_process_group("gloo")
        store = c10d._get_default_store()
        if rank == 1:
            rank_thread().charge_ps(3 * SECOND)
            return store.set("late", "")
        with pytest.raises(dist.DistStoreError, match="wait timeout after 2000ms"):
            store.wait(["late"], timedelta(seconds=2))
        first = rank_thread().now_ps()
        store.wait(["late"], timedelta(seconds=2))
        return first, rank_thread().now_ps()

    assert run(work, network=switch(2)).results == [(2 * SECOND, 3 * SECOND), None]
