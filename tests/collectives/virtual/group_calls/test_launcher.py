"""Collectives and messages of ranks on GPUs: their data as without, their waits on streams."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from collectives.errors import MismatchError
from collectives.virtual import run
from collectives.virtual.streams.gpu import current_gpu
from sim.cluster import Cluster
from sim.errors import DeadlockError, RankError
from sim.topology import Topology
from tests.collectives.communicators import message_contract, tensor_contract
from tests.collectives.virtual.group_calls.every_collective import every_collective, same
from tests.collectives.virtual.group_calls.gpus import GPU, communicator, on_gpus

MICROSECOND = 10**6


def contract(scenario):
    def work(rank):
        Cluster.current().charges = {"poll": MICROSECOND}
        scenario(communicator())

    return work


@pytest.mark.parametrize("num_ranks", [1, 3])
@pytest.mark.parametrize("scenario", tensor_contract.SCENARIOS, ids=lambda one: one.__name__)
def test_communicators_on_gpus_keep_the_contract_of_tensors(scenario, num_ranks):
    on_gpus(contract(scenario), num_ranks)


@pytest.mark.parametrize("num_ranks", [2, 3])
@pytest.mark.parametrize(
    "scenario",
    [*message_contract.SCENARIOS, *message_contract.SCENARIOS_WITHOUT_WAITING],
    ids=lambda one: one.__name__,
)
def test_communicators_on_gpus_keep_the_contract_of_messages(scenario, num_ranks):
    on_gpus(contract(scenario), num_ranks)


@pytest.mark.parametrize(("algorithm", "num_ranks"), [("ring", 3), ("halving_doubling", 3), ("auto", 4)])
def test_results_on_gpus_are_to_the_bit_those_without(algorithm, num_ranks):
    topology = Topology.switch(num_ranks=num_ranks, bandwidth="25GB/s", latency="2us")

    without = run(every_collective, num_ranks, topology, algorithm=algorithm).results
    with_gpus = on_gpus(every_collective, num_ranks, network=topology, algorithm=algorithm).results

    for one, other in zip(without, with_gpus, strict=True):
        assert [key for key in one if not same(one[key], other[key])] == []


def test_waiting_makes_the_stream_wait_and_not_the_host():
    def work(rank):
        dist.init_process_group("nccl")
        tensor = torch.ones(10_000_000)
        dist.all_reduce(tensor)
        gpu = current_gpu()
        host_ps = gpu.now_ps()
        gpu.synchronize()
        return host_ps, gpu.now_ps()

    host_ps, device_ps = on_gpus(work, 2).results[0]

    assert host_ps < device_ps / 10


@pytest.mark.parametrize("how", ["gloo", "variable", "barrier"])
def test_the_host_waits_where_the_script_has_asked_for_that(how, monkeypatch):
    if how == "variable":
        monkeypatch.setenv("TORCH_NCCL_BLOCKING_WAIT", "1")

    def work(rank):
        dist.init_process_group("gloo" if how == "gloo" else "nccl")
        work = dist.all_reduce(torch.ones(10_000_000), async_op=True)
        if how == "barrier":
            work.wait()
            dist.barrier()
        else:
            work.wait()
        gpu = current_gpu()
        host_ps = gpu.now_ps()
        gpu.synchronize()
        return host_ps, gpu.now_ps()

    host_ps, device_ps = on_gpus(work, 2).results[0]

    assert host_ps == device_ps


def test_every_wait_for_a_call_makes_the_stream_wait_that_is_current():
    def work(rank):
        dist.init_process_group("nccl")
        gpu = current_gpu()
        pending = dist.all_reduce(torch.ones(10_000_000), async_op=True)
        pending.wait()
        side = gpu.new_stream()
        with side:
            pending.wait()
            gpu.launch("after", MICROSECOND)
        gpu.host_wait(side, "side")
        on_side_ps = gpu.now_ps()
        gpu.synchronize()
        return on_side_ps, gpu.now_ps()

    on_side_ps, end_ps = on_gpus(work, 2).results[0]

    assert on_side_ps == end_ps


def test_ranks_that_call_different_collectives_are_named():
    def work(rank):
        dist.init_process_group("nccl")
        if rank == 1:
            dist.broadcast(torch.ones(3), 0)
        else:
            dist.all_reduce(torch.ones(3))

    with pytest.raises(DeadlockError, match=r"rank 1 .*broadcast #0"):
        on_gpus(work, 3)


def test_a_rank_that_does_not_call_is_named():
    def work(rank):
        dist.init_process_group("nccl")
        if rank != 1:
            dist.all_reduce(torch.ones(3))

    with pytest.raises(DeadlockError, match="waits for rank 1 to call"):
        on_gpus(work, 3)


def test_ranks_that_disagree_about_parts_are_named():
    def work(rank):
        dist.init_process_group("nccl")
        expects = [2, 1] if rank == 0 else [1, 1]
        dist.all_to_all_single(torch.zeros(sum(expects)), torch.ones(2), expects, [1, 1])

    with pytest.raises((RankError, MismatchError), match=r"gives itself|rank 1 sends 1 elements to rank 0"):
        on_gpus(work, 2)


def test_polling_ends_when_the_call_is_through():
    def work(rank):
        dist.init_process_group("nccl")
        pending = dist.all_reduce(torch.ones(1_000_000), async_op=True)
        num_polls = 0
        while not pending.is_completed():
            current_gpu().host_work("poll", MICROSECOND)
            num_polls += 1
        return num_polls

    assert on_gpus(work, 2).results[0] > 10


def test_gpus_of_the_tests_are_gpus():
    assert GPU.kind == "gpu"
