from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist

from testbed.testing import DependsOnTimeError, VirtualCluster, on_ranks


@on_ranks(3, seeds=6)
def test_a_sum_is_the_same_under_every_seed(rank: int) -> None:
    dist.init_process_group("gloo")
    total = torch.tensor([float(rank)])
    dist.all_reduce(total)
    assert total == 3


def first_to_come(rank: int) -> list[int]:
    dist.init_process_group("gloo")
    if rank:
        dist.send(torch.tensor([float(rank)]), 0)
        return []
    return [dist.recv(torch.zeros(1)) for _ in range(2)]


def test_a_function_that_depends_on_who_comes_first_fails_with_the_seed() -> None:
    with pytest.raises(DependsOnTimeError, match=r"returned \[2, 1\], without faults \[1, 2\]") as caught:
        VirtualCluster(3, seeds=20).run(first_to_come)

    seed = int(str(caught.value).partition("seeds=[")[2].partition("]")[0])
    with pytest.raises(DependsOnTimeError, match=f"under seed {seed}:"):
        VirtualCluster(3, seeds=[seed]).run(first_to_come)


def test_an_assertion_that_fails_under_a_seed_names_it() -> None:
    def trusts_in_order(rank: int) -> None:
        assert first_to_come(rank) in ([], [1, 2])

    with pytest.raises(AssertionError) as caught:
        VirtualCluster(3, seeds=20).run(trusts_in_order)

    assert any("under seed " in note for note in caught.value.__notes__)


@pytest.mark.parametrize("wrong", [{"seeds": -1}, {"seeds": [-3]}, {"seeds": 3, "orders": "all"}])
def test_seeds_that_cannot_be_are_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="seeds"):
        VirtualCluster(3, **wrong)
