"""The key-value store of the rank threads is one for all; waits for keys and calls end in virtual time."""

import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
import torch.distributed.distributed_c10d as c10d
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives.errors import CollectiveTimeoutError
from collectives.virtual import Roofline, run
from sim.errors import DeadlockError
from sim.units import SECOND
from tests.collectives.virtual.clusters import in_group, rank_thread
from tests.given import switch


def test_a_store_that_the_script_makes_is_one_for_all_ranks(tmp_path):
    def work(rank):
        stores = [
            dist.TCPStore("localhost", 29501, 3, rank == 0),
            dist.TCPStore(host_name="localhost", port=29502, is_master=rank == 0),
            dist.FileStore(str(tmp_path / "file"), 3),
        ]
        dist.init_process_group("gloo", store=stores[0], rank=rank, world_size=3)
        for number, store in enumerate(stores):
            store.set(f"key {rank}", f"{number} of {rank}")
        return [store.get(f"key {(rank + 1) % 3}").decode() for store in stores]

    results = run(work, network=switch(3)).results

    assert results == [[f"{number} of {(rank + 1) % 3}" for number in range(3)] for rank in range(3)]
    assert not list(tmp_path.iterdir())
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    assert type(store) is dist.TCPStore


def test_a_rendezvous_of_the_script_and_groups_made_by_hand_are_those_of_the_run():
    def work(rank):
        store, own, size = next(dist.rendezvous("env://", rank, 2))
        store.set(f"key {own}", "value")
        store.wait([f"key {1 - own}"])

        options = dist.ProcessGroupNCCL.Options()
        options.is_high_priority_stream = True
        groups = [
            dist.ProcessGroupGloo(dist.PrefixStore("gloo", store), rank, size),
            dist.ProcessGroupNCCL(dist.PrefixStore("nccl", store), rank, size, options),
        ]
        tensor = torch.ones(1)
        for group in groups:
            group.allreduce([tensor]).wait()
        return tensor.item(), isinstance(groups[1], dist.ProcessGroupNCCL)

    kind = dist.ProcessGroupGloo

    assert run(work, network=switch(2)).results == [(4.0, True), (4.0, True)]
    assert dist.ProcessGroupGloo is kind


@pytest.mark.parametrize("compute", [None, Roofline("h100")])
@given(late=st.integers(0, 700), limit=st.integers(1, 700), sets=st.booleans())
@settings(max_examples=settings.default.max_examples // 4)
def test_a_clock_that_a_rank_reads_after_a_key_is_not_before_its_setters(compute, late, limit, sets):
    def work(rank):
        dist.init_process_group("gloo", timeout=timedelta(seconds=limit))
        store = c10d._get_default_store()
        began = time.perf_counter()
        if rank == 0:
            time.sleep(late)
            _ = store.set("key", "") if sets else store.add("key", 1)
        elif late <= limit:
            store.get("key")
        else:
            with pytest.raises(dist.DistStoreError, match=f"wait timeout after {limit * 1000}ms"):
                store.wait(["key"])
            return None
        return round(time.perf_counter() - began)

    came = run(work, 2, network=switch(2), compute=compute).results[1]

    assert came == (late if late <= limit else None)


def test_keys_and_numbers_of_the_store_are_those_that_ranks_have_set():
    def work(rank):
        store = dist.TCPStore("localhost", 29501, 3, rank == 0)
        store.compare_set("winner", "", str(rank))
        dist.barrier()
        return store.add("count", 2), store.get("winner"), store.check(["winner"]), store.check(["other"])

    counts, *others = zip(*in_group(work, 3).results, strict=True)

    assert sorted(counts) == [2, 4, 6]
    assert [len(set(own)) for own in others] == [1, 1, 1]
    assert [own[0] for own in others[1:]] == [True, False]


@pytest.mark.parametrize("transport_model", ["ideal", "gloo"])
def test_a_rank_waits_for_a_collective_as_long_as_its_group_wants_to(transport_model):
    def work(rank):
        dist.init_process_group("gloo", timeout=timedelta(seconds=3))
        if rank == 1:
            rank_thread().charge_ps(10 * SECOND)
            return None
        with pytest.raises(CollectiveTimeoutError, match=r" Timed out waiting 3000ms .* all_reduce #0"):
            dist.all_reduce(torch.ones(3))
        return rank_thread().now_ps()

    assert run(work, network=switch(2), transport_model=transport_model).results == [3 * SECOND, None]


def test_a_wait_may_have_a_time_of_its_own_and_the_call_goes_on_after_it():
    def work(rank):
        if rank == 1:
            rank_thread().charge_ps(2 * SECOND)
        tensor = torch.ones(3)
        call = dist.all_reduce(tensor, async_op=True)
        if rank == 0:
            with pytest.raises(CollectiveTimeoutError, match="caught collective operation timeout"):
                call.wait(timedelta(seconds=1))
            assert rank_thread().now_ps() == SECOND
        return dist.barrier(), dist.get_rank()

    assert in_group(work, 2).results == [(None, 0), (None, 1)]


def test_whoever_gives_up_in_a_standstill_gets_the_deadlock_if_nobody_catches_it():
    def work(rank):
        dist.init_process_group("gloo", timeout=timedelta(seconds=3))
        if rank == 0:
            dist.barrier()

    with pytest.raises(DeadlockError, match="rank 1 did not take part: finished") as caught:
        run(work, network=switch(2))

    assert isinstance(caught.value.__cause__, CollectiveTimeoutError)


def test_waiting_for_keys_of_the_store_ends_after_the_time_that_is_given():
    def work(rank):
        store = c10d._get_default_store()
        if rank == 1:
            rank_thread().charge_ps(3 * SECOND)
            return store.set("late", "")
        with pytest.raises(dist.DistStoreError, match="wait timeout after 2000ms"):
            store.wait(["late"], timedelta(seconds=2))
        first = rank_thread().now_ps()
        store.wait(["late"], timedelta(seconds=2))
        return first, rank_thread().now_ps()

    assert in_group(work, 2).results == [(2 * SECOND, 3 * SECOND), None]
