"""Contract of every transport with every algorithm: scenarios that run on each rank over a communicator.

A scenario asserts on its own rank and returns what shall be the same on every transport.  What every
collective does to any tensor is `tensor_contract`.
"""

import random
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

from collectives.communicators.communicator import Communicator
from collectives.communicators.native import NativeLauncher

Scenario: TypeAlias = Callable[[Communicator], Any]

DTYPES = (
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.int64, torch.int16,
    torch.uint8, torch.bool,
)  # fmt: skip

LACKING_IN_GLOO = (torch.int16, torch.complex64, torch.complex128)


def carried(communicator: Communicator, dtypes: Sequence[torch.dtype]) -> list[torch.dtype]:
    """All but those of which Gloo lacks a collective, where Gloo's own are called."""
    lacking = LACKING_IN_GLOO if isinstance(communicator.launcher, NativeLauncher) else ()
    return [dtype for dtype in dtypes if dtype not in lacking]


def part(rank: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Small integers, so that any order of additions gives the same bits."""
    return ((torch.arange(count) + rank) % 3).to(dtype)


def whole(world_size: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    total = torch.zeros(count, dtype=dtype)
    for rank in range(world_size):
        total += part(rank, count, dtype)
    return total


def all_reduce_sums_every_dtype_and_size(communicator: Communicator):
    for count in (0, 1, 3, 1000):
        for dtype in carried(communicator, DTYPES):
            tensor = part(communicator.rank, count, dtype)
            communicator.all_reduce(tensor)
            assert torch.equal(tensor, whole(communicator.world_size, count, dtype)), (count, dtype)


def rounding_depends_on_the_algorithm_alone(communicator: Communicator):
    generator = torch.Generator().manual_seed(communicator.rank)
    tensor = torch.randn(1001, generator=generator)
    communicator.all_reduce(tensor)
    return tensor.numpy().tobytes()


def several_in_flight_do_not_mix_in_whatever_order_ranks_poll_and_wait(communicator: Communicator):
    """Several of one size, too, which only their order tells apart."""
    choose, counts = random.Random(communicator.rank), (1, 50, 21, 200, 50, 33, 50)
    for _ in range(5):
        tensors = [part(communicator.rank, count, torch.float32) + n for n, count in enumerate(counts)]
        works = [communicator.all_reduce(tensor, async_op=True) for tensor in tensors]
        for _ in range(choose.randrange(8)):
            choose.choice([communicator.poll, choose.choice(works).is_completed])()
        for work in choose.sample(works, len(works)):
            work.wait()
        for n, tensor in enumerate(tensors):
            p = communicator.world_size
            assert torch.equal(tensor, whole(p, counts[n], torch.float32) + n * p)


def polling_completes_what_is_in_flight(communicator: Communicator):
    tensor = torch.ones(2000)
    work = communicator.all_reduce(tensor, async_op=True)
    while not work.is_completed():
        communicator.clock.charge("poll")
    assert torch.equal(tensor, torch.full((2000,), float(communicator.world_size)))


def a_barrier_returns(communicator: Communicator):
    for _ in range(3):
        communicator.barrier()


SCENARIOS = (
    all_reduce_sums_every_dtype_and_size, rounding_depends_on_the_algorithm_alone,
    several_in_flight_do_not_mix_in_whatever_order_ranks_poll_and_wait, polling_completes_what_is_in_flight,
    a_barrier_returns,
)  # fmt: skip


def play(communicator: Communicator, scenarios: Sequence[Scenario]) -> dict[str, Any]:
    """Run *scenarios*; return what each returned."""
    return {scenario.__name__: scenario(communicator) for scenario in scenarios}
