"""Collectives and messages of ranks on GPUs: their data as without, their waits on streams.

Nothing here names a device, so tensors of the CPU stand for those of GPUs.
"""

import pytest
import torch
import torch.distributed as dist

from collectives.virtual import Roofline
from collectives.virtual.streams.gpu import current_gpu
from tests.collectives.communicators import message_contract, tensor_contract
from tests.collectives.virtual.clusters import in_group, on_gpus, rank_thread
from tests.collectives.virtual.group_calls.every_collective import every_collective, same
from tests.given import switch

MICROSECOND = 10**6


def grouped(work, num_ranks, **options):
    """Run *work* on ranks of one group of NCCL's that compute on GPUs behind a switch."""
    return in_group(
        work, num_ranks, "nccl", network=switch(num_ranks, "25GB/s"), compute=Roofline("h100"), **options
    )


def keeps(scenario, num_ranks):
    def work(rank):
        rank_thread().charges = {"poll": MICROSECOND}
        scenario(dist.distributed_c10d._get_default_group().connect())

    grouped(work, num_ranks)


@pytest.mark.parametrize("num_ranks", [1, 3])
@pytest.mark.parametrize("scenario", tensor_contract.SCENARIOS, ids=lambda one: one.__name__)
def test_communicators_on_gpus_keep_the_contract_of_tensors(scenario, num_ranks):
    keeps(scenario, num_ranks)


@pytest.mark.parametrize("num_ranks", [2, 3])
@pytest.mark.parametrize(
    "scenario",
    [*message_contract.SCENARIOS, *message_contract.SCENARIOS_WITHOUT_WAITING],
    ids=lambda one: one.__name__,
)
def test_communicators_on_gpus_keep_the_contract_of_messages(scenario, num_ranks):
    keeps(scenario, num_ranks)


@pytest.mark.parametrize(("algorithm", "num_ranks"), [("ring", 3), ("halving_doubling", 3), ("auto", 4)])
def test_results_on_gpus_are_to_the_bit_those_without(algorithm, num_ranks):
    without = in_group(every_collective, num_ranks, algorithm=algorithm, lenient=True).results
    with_gpus = grouped(every_collective, num_ranks, algorithm=algorithm).results

    assert same(without, with_gpus)


@pytest.mark.parametrize("how", ["none", "gloo", "variable", "barrier"])
def test_waiting_makes_the_stream_wait_and_the_host_where_the_script_has_asked_for_that(how, monkeypatch):
    if how == "variable":
        monkeypatch.setenv("TORCH_NCCL_BLOCKING_WAIT", "1")

    def work(rank):
        dist.init_process_group("gloo" if how == "gloo" else "nccl")
        dist.all_reduce(torch.ones(10_000_000), async_op=True).wait()
        if how == "barrier":
            dist.barrier()
        gpu = current_gpu()
        host_ps = gpu.now_ps()
        gpu.synchronize()
        return host_ps, gpu.now_ps()

    host_ps, device_ps = on_gpus(work, 2, switch(2, "25GB/s")).results[0]

    assert host_ps < device_ps / 10 if how == "none" else host_ps == device_ps


def test_every_wait_for_a_call_makes_the_stream_wait_that_is_current():
    def work(rank):
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

    on_side_ps, end_ps = grouped(work, 2).results[0]

    assert on_side_ps == end_ps


def test_polling_ends_when_the_call_is_through():
    def work(rank):
        pending = dist.all_reduce(torch.ones(1_000_000), async_op=True)
        num_polls = 0
        while not pending.is_completed():
            current_gpu().host_work("poll", MICROSECOND)
            num_polls += 1
        return num_polls

    assert grouped(work, 2).results[0] > 10
