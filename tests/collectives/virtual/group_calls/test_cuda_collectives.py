"""Collectives of virtual CUDA tensors: with data as those of the CPU, without as far as they are known."""

import math

import torch
import torch.distributed as dist

from collectives.virtual import Roofline
from collectives.virtual.streams.gpu import current_gpu
from tests.collectives.virtual.clusters import in_group, on_gpus
from tests.collectives.virtual.group_calls.every_collective import every_collective, same


def on_the_device(rank):
    return {name: to_cpu(value) for name, value in every_collective(rank, f"cuda:{rank}").items()}


def to_cpu(value):
    if isinstance(value, torch.Tensor):
        return value.cpu()
    return [to_cpu(part) for part in value] if isinstance(value, list) else value


def test_results_of_virtual_cuda_tensors_are_to_the_bit_those_of_the_cpu():
    on_the_cpu = in_group(every_collective, 3, lenient=True).results

    assert same(on_the_cpu, in_group(on_the_device, 3, "nccl", compute=Roofline("h100")).results)


def test_small_integers_are_known_without_data_and_what_depends_on_numbers_is_not():
    def work(rank):
        device = torch.device("cuda", rank)
        count = torch.full((1,), rank + 1, device=device)
        dist.all_reduce(count)
        sizes = [torch.zeros(2, dtype=torch.int64, device=device) for _ in range(3)]
        dist.all_gather(sizes, torch.full((2,), rank, device=device))
        vote = torch.full((2,), 7 if rank == 1 else 0, device=device)
        dist.broadcast(vote, 1)
        numbers = torch.randn(100, device=device)[:2] if rank == 0 else torch.full((2,), 1.0, device=device)
        dist.all_reduce(numbers)
        return count.item(), [size.tolist() for size in sizes], vote.tolist(), numbers.sum().item()

    for count, sizes, vote, total in in_group(
        work, 3, "nccl", compute=Roofline("h100"), fake=True, fold=False
    ).results:
        assert (count, sizes, vote) == (6, [[0, 0], [1, 1], [2, 2]], [7, 7])
        assert math.isnan(total)


def test_tensors_of_the_cpu_make_the_host_wait_and_not_the_device():
    def work(rank):
        dist.init_process_group("cpu:gloo,cuda:nccl")
        torch.cuda.set_device(rank)
        current_gpu().launch("long", 10**9)
        dist.all_reduce(torch.ones(4))
        event = torch.cuda.Event()
        event.record()
        return event.query()

    assert on_gpus(work, 3).results == [False] * 3
