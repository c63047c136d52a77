"""The order of a run decides who is first where time does not say it, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from collectives.virtual import run
from sim.cluster import RandomOrder
from sim.errors import DeadlockError
from tests.collectives.virtual.clusters import rank_thread
from tests.given import switch

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


def store_of_rank() -> Any:
    return dist.distributed_c10d._get_default_store()


@pytest.mark.parametrize("transport_model", ["ideal", "gloo"])
@pytest.mark.parametrize("what", ["all_reduce", "any source"])
def test_who_only_asks_whether_something_has_come_waits_for_it(
    what: str, transport_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sim.cluster.rank_thread._PATIENCE", 20)

    outcome = run(lambda rank: asked_for_ever(rank, what), network=switch(2), transport_model=transport_model)

    assert outcome.results == [True, True]
    assert max(outcome.times_ps) > 0


def test_who_asks_for_what_never_comes_is_in_a_deadlock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sim.cluster.rank_thread._PATIENCE", 20)

    def work(rank: int) -> None:
        dist.init_process_group()
        while rank == 0 and not store_of_rank().check(["never"]):
            pass

    with pytest.raises(
        DeadlockError, match="rank 0: waits since 0 ps for key 'default_pg/0//never' of the store"
    ):
        run(work, network=switch(2))
