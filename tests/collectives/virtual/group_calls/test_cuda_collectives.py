"""Collectives of virtual CUDA tensors: with data as those of the CPU, without in the same time."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from collectives.virtual import run
from collectives.virtual.streams.gpu import current_gpu
from sim.topology import Topology
from tests.collectives.virtual.group_calls.every_collective import every_collective, same
from tests.collectives.virtual.group_calls.gpus import on_gpus

NUM_RANKS = 3


def on_cuda(rank):
    results = every_collective(rank, f"cuda:{rank}", "nccl")
    return {name: on_cpu(value) for name, value in results.items()}


def on_cpu(value):
    if isinstance(value, torch.Tensor):
        return value.cpu()
    return [on_cpu(part) for part in value] if isinstance(value, list) else value


def test_results_of_virtual_cuda_tensors_are_to_the_bit_those_of_the_cpu():
    topology = Topology.switch(num_ranks=NUM_RANKS, bandwidth="25GB/s", latency="2us")

    on_the_cpu = run(every_collective, NUM_RANKS, topology).results
    on_the_device = on_gpus(on_cuda, NUM_RANKS, network=topology).results

    for one, other in zip(on_the_cpu, on_the_device, strict=True):
        assert [name for name in one if not same(one[name], other[name])] == []


@pytest.mark.costly
def test_collectives_without_data_take_the_time_of_those_with():
    def work(rank):
        every_collective(rank, f"cuda:{rank}", "nccl")

    with_data = on_gpus(work, NUM_RANKS).times_ps
    without = on_gpus(work, NUM_RANKS, fake=True).times_ps

    assert with_data == without


def test_small_integers_are_known_without_data_and_numbers_are_not():
    def work(rank):
        dist.init_process_group("nccl")
        device = torch.device("cuda", rank)
        count = torch.full((1,), rank + 1, device=device)
        dist.all_reduce(count)
        sizes = [torch.zeros(2, dtype=torch.int64, device=device) for _ in range(NUM_RANKS)]
        dist.all_gather(sizes, torch.full((2,), rank, device=device))
        vote = torch.empty(2, dtype=torch.int64, device=device)
        if rank == 1:
            vote.fill_(7)
        dist.broadcast(vote, 1)
        numbers = torch.randn(100, device=device)
        dist.all_reduce(numbers)
        return count.item(), [size.tolist() for size in sizes], vote.tolist(), numbers.sum().item()

    count, sizes, vote, total = on_gpus(work, NUM_RANKS, fake=True, fold=False).results[0]

    assert (count, sizes, vote) == (6, [[0, 0], [1, 1], [2, 2]], [7, 7])
    assert total != total


def test_a_result_that_depends_on_what_is_not_known_is_not_known():
    def work(rank):
        dist.init_process_group("nccl")
        device = torch.device("cuda", rank)
        known = torch.full((2,), 1.0, device=device)
        number = known if rank else torch.randn(100, device=device)[:2]
        dist.all_reduce(number)
        return number.sum().item()

    results = on_gpus(work, NUM_RANKS, fake=True).results

    assert all(total != total for total in results)


def test_tensors_of_the_cpu_make_the_host_wait_and_not_the_device():
    def work(rank):
        dist.init_process_group("cpu:gloo,cuda:nccl")
        torch.cuda.set_device(rank)
        current_gpu().launch("long", 10**9)
        dist.all_reduce(torch.ones(4))
        event = torch.cuda.Event()
        event.record()
        return event.query()

    assert on_gpus(work, NUM_RANKS).results == [False] * NUM_RANKS
