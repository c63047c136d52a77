"""Contract of every transport: scenarios that run on each rank over a communicator.

A scenario asserts on its own rank and returns what shall be the same on every transport.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

from collectives.communicators.communicator import Communicator
from collectives.communicators.reduction import REDUCE

Scenario: TypeAlias = Callable[[Communicator], Any]

DTYPES = (
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.complex64,
    torch.int64,
    torch.int16,
    torch.uint8,
    torch.bool,
)


def part(rank: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Small integers, so that any order of additions gives the same bits."""
    return ((torch.arange(count) + rank) % 3).to(dtype)


def whole(world_size: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    total = torch.zeros(count, dtype=dtype)
    for rank in range(world_size):
        total += part(rank, count, dtype)
    return total


def all_reduce_sums_every_dtype_and_size(communicator: Communicator) -> Any:
    for count in (0, 1, 2, 3, 7, 64, 1000):
        for dtype in DTYPES:
            tensor = part(communicator.rank, count, dtype)
            communicator.all_reduce(tensor)
            assert torch.equal(tensor, whole(communicator.world_size, count, dtype)), (count, dtype)


def all_reduce_averages(communicator: Communicator) -> Any:
    p = communicator.world_size
    tensor = torch.full((5, 3), float(communicator.rank * p))
    communicator.all_reduce(tensor, "avg")
    assert torch.equal(tensor, torch.full((5, 3), sum(range(p)) * 1.0))


def all_reduce_takes_any_strides(communicator: Communicator) -> Any:
    tensor = torch.zeros(4, 6)[:, ::2].t()
    tensor += communicator.rank
    communicator.all_reduce(tensor)
    assert torch.equal(tensor, torch.full((3, 4), float(sum(range(communicator.world_size)))))


def all_reduce_knows_the_other_operations(communicator: Communicator) -> Any:
    ranks = [part(rank + 1, 20, torch.int64) for rank in range(communicator.world_size)]
    for op in ("product", "min", "max", "band", "bor", "bxor"):
        tensor, expected = ranks[communicator.rank].clone(), ranks[0].clone()
        for other in ranks[1:]:
            REDUCE[op](expected, other)
        communicator.all_reduce(tensor, op)
        assert torch.equal(tensor, expected), op


def rounding_depends_on_the_algorithm_alone(communicator: Communicator) -> Any:
    generator = torch.Generator().manual_seed(communicator.rank)
    tensor = torch.randn(1001, generator=generator)
    communicator.all_reduce(tensor)
    return tensor.numpy().tobytes()


def several_are_in_flight_without_mixing(communicator: Communicator) -> Any:
    tensors = [part(communicator.rank + n, 10 * n + 1, torch.float32) for n in range(6)]
    works = [communicator.all_reduce(tensor, async_op=True) for tensor in tensors]
    communicator.poll()
    order = works if communicator.rank % 2 else works[::-1]
    for work in order:
        work.wait()
    for n, tensor in enumerate(tensors):
        expected = sum(part(rank + n, 10 * n + 1, torch.float32) for rank in range(communicator.world_size))
        assert torch.equal(tensor, expected)


def ranks_may_poll_and_wait_in_any_order(communicator: Communicator) -> Any:
    choose = random.Random(communicator.rank)
    for _ in range(10):
        counts = (1, 11, 21, 200, 5, 33)
        tensors = [part(communicator.rank, count, torch.float32) for count in counts]
        works = [communicator.all_reduce(tensor, async_op=True) for tensor in tensors]
        for _ in range(choose.randrange(8)):
            choose.choice([communicator.poll, choose.choice(works).is_completed])()
        for work in choose.sample(works, len(works)):
            work.wait()
        for count, tensor in zip(counts, tensors, strict=True):
            assert torch.equal(tensor, whole(communicator.world_size, count, torch.float32))


def equal_ones_in_flight_do_not_mix(communicator: Communicator) -> Any:
    tensors = [torch.full((50,), float(n)) for n in range(8)]
    works = [communicator.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in works:
        work.wait()
    assert [tensor[0].item() for tensor in tensors] == [n * communicator.world_size for n in range(8)]


def polling_completes_what_is_in_flight(communicator: Communicator) -> Any:
    tensor = torch.ones(2000)
    work = communicator.all_reduce(tensor, async_op=True)
    while not work.is_completed():
        communicator.clock.charge("poll")
    assert torch.equal(tensor, torch.full((2000,), float(communicator.world_size)))


def broadcast_replaces_by_the_roots(communicator: Communicator) -> Any:
    for root in range(communicator.world_size):
        tensor = part(communicator.rank, 9, torch.int32)
        communicator.broadcast(tensor, root)
        assert torch.equal(tensor, part(root, 9, torch.int32))


def all_gather_lines_up_the_ranks(communicator: Communicator) -> Any:
    p = communicator.world_size
    for count in (0, 1, 5):
        output = torch.full((p, count), -1, dtype=torch.int64)
        communicator.all_gather(output, torch.full((count,), communicator.rank))
        assert torch.equal(output, torch.arange(p)[:, None].expand(p, count))


def reduce_changes_the_root_only(communicator: Communicator) -> Any:
    for root in range(communicator.world_size):
        tensor = part(communicator.rank, 7, torch.float32)
        communicator.reduce(tensor, root, "sum")
        mine = part(communicator.rank, 7, torch.float32)
        expected = whole(communicator.world_size, 7, torch.float32) if communicator.rank == root else mine
        assert torch.equal(tensor, expected)


def reduce_scatter_gives_each_rank_its_part(communicator: Communicator) -> Any:
    p = communicator.world_size
    for count in (0, 1, 5):
        tensor, output = part(communicator.rank, p * count, torch.int64), torch.full((count,), -1)
        communicator.reduce_scatter(output, tensor, "sum")
        assert torch.equal(output, whole(p, p * count, torch.int64).view(p, count)[communicator.rank])
        assert torch.equal(tensor, part(communicator.rank, p * count, torch.int64))


def gather_lines_up_the_ranks_on_the_root(communicator: Communicator) -> Any:
    p = communicator.world_size
    for root in range(p):
        output = torch.full((p, 3), -1) if communicator.rank == root else None
        communicator.gather(output, torch.full((3,), communicator.rank), root)
        if output is not None:
            assert torch.equal(output, torch.arange(p)[:, None].expand(p, 3))


def scatter_gives_each_rank_its_part(communicator: Communicator) -> Any:
    p = communicator.world_size
    for root in range(p):
        tensor = torch.arange(3 * p) + 100 * root if communicator.rank == root else None
        output = torch.full((3,), -1)
        communicator.scatter(output, tensor, root)
        assert torch.equal(output, torch.arange(3) + 3 * communicator.rank + 100 * root)


def all_to_all_exchanges_parts(communicator: Communicator) -> Any:
    p, rank = communicator.world_size, communicator.rank
    tensor = (torch.arange(p)[:, None] + 100 * rank).expand(p, 2).contiguous()
    output = torch.full((p, 2), -1)
    communicator.all_to_all(output, tensor)
    assert torch.equal(output, (100 * torch.arange(p)[:, None] + rank).expand(p, 2))


def a_barrier_returns(communicator: Communicator) -> Any:
    for _ in range(3):
        communicator.barrier()


def gradients_do_not_flow_through(communicator: Communicator) -> Any:
    tensor = torch.ones(3, requires_grad=True)
    communicator.all_reduce(tensor)
    assert tensor.grad_fn is None
    assert torch.equal(tensor.detach(), torch.full((3,), float(communicator.world_size)))


def two_communicators_do_not_mix(first: Communicator, second: Communicator) -> Any:
    a, b = torch.ones(100), torch.full((100,), 2.0)
    works = [first.all_reduce(a, async_op=True), second.all_reduce(b, async_op=True)]
    for work in works:
        work.wait()
    assert (a[0].item(), b[0].item()) == (first.world_size, 2 * first.world_size)


SCENARIOS = (
    all_reduce_sums_every_dtype_and_size,
    all_reduce_averages,
    all_reduce_takes_any_strides,
    all_reduce_knows_the_other_operations,
    rounding_depends_on_the_algorithm_alone,
    several_are_in_flight_without_mixing,
    ranks_may_poll_and_wait_in_any_order,
    equal_ones_in_flight_do_not_mix,
    polling_completes_what_is_in_flight,
    broadcast_replaces_by_the_roots,
    all_gather_lines_up_the_ranks,
    reduce_changes_the_root_only,
    reduce_scatter_gives_each_rank_its_part,
    gather_lines_up_the_ranks_on_the_root,
    scatter_gives_each_rank_its_part,
    all_to_all_exchanges_parts,
    a_barrier_returns,
    gradients_do_not_flow_through,
)


def play(communicator: Communicator, scenarios: Sequence[Scenario]) -> dict[str, Any]:
    """Run *scenarios*; return what each returned."""
    return {scenario.__name__: scenario(communicator) for scenario in scenarios}
