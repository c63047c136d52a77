"""The order of a run decides who is first where time does not say it, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from collectives.virtual import run
from sim.cluster import RandomOrder
from tests.collectives.virtual.clusters import rank_thread, switch

SEEDS = [RandomOrder(seed) for seed in range(12)]


def sources(rank: int) -> list[int]:
    dist.init_process_group()
    if rank:
        dist.send(torch.ones(1), 0)
        return []
    return [dist.recv(torch.ones(1)) for _ in range(2)]  # type: ignore[misc]


def numbers_from_a_counter(rank: int) -> int:
    return dist.distributed_c10d._get_default_store().add("rank", 1)  # type: ignore[no-any-return]


def test_a_receive_from_any_source_gets_any_of_the_messages_that_came_together() -> None:
    seen = [run(sources, network=switch(3), order=order).results[0] for order in SEEDS]

    assert {tuple(one) for one in seen} == {(1, 2), (2, 1)}
    assert seen == [run(sources, network=switch(3), order=order).results[0] for order in SEEDS]


def test_a_counter_in_the_store_gives_its_numbers_in_any_order() -> None:
    def work(rank: int) -> int:
        dist.init_process_group()
        return numbers_from_a_counter(rank)

    assert {tuple(run(work, network=switch(2), order=order).results) for order in SEEDS} == {(1, 2), (2, 1)}


def train(rank: int) -> tuple[list[Any], int]:
    dist.init_process_group()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 2))
    replica = DistributedDataParallel(model, bucket_cap_mb=0.0001)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):
        replica(torch.full((4, 8), float(rank + step))).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        dist.barrier()
    return [parameter.tolist() for parameter in model.parameters()], rank_thread().now_ps()


@pytest.mark.parametrize("transport_model", ["ideal", "gloo"])
def test_training_gives_the_same_numbers_at_the_same_times_in_every_order(transport_model: str) -> None:
    plain = run(train, network=switch(3), transport_model=transport_model)

    for order in SEEDS[:3]:
        ordered = run(train, network=switch(3), transport_model=transport_model, order=order)
        assert (ordered.results, ordered.times_ps) == (plain.results, plain.times_ps)
