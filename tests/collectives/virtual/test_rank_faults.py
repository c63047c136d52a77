from __future__ import annotations

import time
from typing import Any

import pytest
import torch
import torch.distributed as dist

from collectives.virtual import AbortedGroup, ClockJump, CrossedGroups, FailingCode, SlowStore, run
from sim.errors import ConditionError, DeadlockError, RankError


def train(rank: int) -> tuple[torch.Tensor, list[float]]:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    times = []
    for _ in range(3):
        model(torch.full((1, 2), float(rank))).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        times.append(time.time())
    return model.module.weight.detach(), times


def outcome(*conditions: Any) -> Any:
    return run(train, ranks=3, conditions=conditions)


def meet(rank: int) -> bytes:
    dist.init_process_group("gloo")
    store = dist.distributed_c10d._get_default_store()
    store.set(f"rank {rank}", str(rank))
    met: bytes = store.get(f"rank {(rank + 1) % 3}")
    return met


def test_a_slow_store_changes_times_and_no_results() -> None:
    calm, slow = run(meet, 3), run(meet, 3, conditions=[SlowStore("1ms", seed=3)])

    assert calm.results == slow.results
    assert slow.seconds > calm.seconds + 1e-3
    assert slow.times_ps == run(meet, 3, conditions=[SlowStore("1ms", seed=3)]).times_ps


@pytest.mark.parametrize("where", ["rank", "hook"])
def test_code_that_fails_fails_on_its_rank(where: Any) -> None:
    with pytest.raises(RankError, match="rank 1 raised InjectedError: FailingCode") as caught:
        outcome(FailingCode(1, iteration=2, where=where))

    assert caught.value.rank == 1


def test_a_rank_that_has_aborted_its_groups_is_told_so() -> None:
    with pytest.raises(RankError, match="rank 2: its process group was aborted"):
        outcome(AbortedGroup(2, iteration=1))


def test_groups_made_in_another_order_are_named() -> None:
    with pytest.raises(DeadlockError, match="rank 0 called something else"):
        outcome(CrossedGroups(0, iteration=2))


def test_a_clock_that_is_set_tells_another_time_and_changes_nothing_else() -> None:
    calm, set_back = outcome(), outcome(ClockJump(1, by=-60.0, iteration=2))

    assert set_back.times_ps == calm.times_ps
    first, second, third = set_back.results[1][1]
    assert second - first < -59
    assert third - second < 1
    assert set_back.results[0][1] == sorted(set_back.results[0][1])


@pytest.mark.parametrize(
    "make",
    [
        lambda: FailingCode(0, iteration=0),
        lambda: AbortedGroup(0, iteration=-1),
        lambda: ClockJump(0, by=float("nan")),
        lambda: FailingCode(0, where="nowhere"),  # type: ignore[arg-type]
        lambda: SlowStore("1ms", seed=-1),
    ],
)
def test_faults_that_cannot_be_are_refused(make: Any) -> None:
    with pytest.raises(ConditionError):
        make()
