"""The order of a run decides who is first where time does not say it, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from collectives.virtual import Roofline, run
from sim.cluster import RandomOrder
from tests.collectives.virtual.clusters import rank_thread
from tests.given import switch

SEEDS = [RandomOrder(seed) for seed in range(12)]


def sources(rank: int) -> list[int]:
    dist.init_process_group()
    if rank:
        dist.send(torch.ones(1), 0)
        return []
    return [dist.recv(torch.ones(1)) for _ in range(2)]  # type: ignore[misc]


def number_from_a_counter(rank: int) -> int:
    dist.init_process_group()
    return dist.distributed_c10d._get_default_store().add("rank", 1)  # type: ignore[no-any-return]


def test_a_receive_from_any_source_and_a_counter_come_to_any_order_which_repeats() -> None:
    def seen() -> list[tuple[list[int], list[int]]]:
        return [
            (run(sources, 3, order=order).results[0], run(number_from_a_counter, 2, order=order).results)
            for order in SEEDS
        ]

    first = seen()

    for one in zip(*first, strict=True):
        assert {tuple(order) for order in one} == {(1, 2), (2, 1)}
    assert first == seen()


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


def asked_for_ever(rank: int, what: str) -> bool:
    """Do nothing but ask whether something has come, which takes no time."""
    dist.init_process_group()
    if what == "all_reduce":
        work = dist.all_reduce(torch.ones(1), async_op=True)
    elif rank == 0:
        work = dist.irecv(torch.ones(1))
    else:
        dist.send(torch.ones(1), 0)
        return True
    while not work.is_completed():
        pass
    return True


@pytest.mark.parametrize(
    "options",
    [{"transport_model": "ideal"}, {"transport_model": "gloo"}, {"compute": Roofline("h100")}],
    ids=["ideal", "gloo", "h100"],
)
@pytest.mark.parametrize("what", ["all_reduce", "any source"])
def test_who_only_asks_whether_something_has_come_waits_for_it(
    what: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sim.cluster.rank_thread._PATIENCE", 20)

    outcome = run(lambda rank: asked_for_ever(rank, what), network=switch(2), **options)

    assert outcome.results == [True, True]
    assert max(outcome.times_ps) > 0
