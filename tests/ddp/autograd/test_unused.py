import pytest
import torch
from torch import nn
from torch.nn import Parameter

from ddp import DistributedDataParallel
from ddp.autograd.unused import FindUnused
from tests.ddp.rank_threads import on_ranks


def test_what_the_graph_does_not_reach_is_surely_unused_unless_another_forward_pass_may_use_it():
    used, unused = Parameter(torch.ones(2)), Parameter(torch.ones(2))
    readiness = FindUnused([used, unused])

    readiness.forward_ended([used.sum()])
    assert readiness.surely_unused == {1}

    readiness.forward_ended([unused.sum()])
    assert readiness.surely_unused == frozenset()


def collectives_of_a_pass(strategy: str) -> list[str]:
    """Return what our communicator starts and waits for in one pass with unused parameters."""

    def one(_: int) -> list[str]:
        options = {"algorithm": "ring", "strategy": strategy, "find_unused_parameters": True}
        model = DistributedDataParallel(nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)]), **options)
        said: list[str] = []
        communicator = model._communicator
        all_reduce = communicator.all_reduce

        def noted(tensor: torch.Tensor, *arguments: object, **options: object):
            what = "users" if tensor.dtype is torch.int32 else "gradients"
            said.append(f"start {what}")
            work = all_reduce(tensor, *arguments, **options)
            wait = work.wait
            work.wait = lambda *limit: (said.append(f"await {what}"), wait(*limit))
            return work

        communicator.all_reduce = noted
        model._driver.forward_begins()
        loss = model.module[0](torch.ones(1, 2))
        model._driver.forward_ended([loss])
        loss.sum().backward()
        assert model.module[1].weight.grad is None
        return list(dict.fromkeys(said))

    (first, second) = on_ranks(one)
    assert first == second
    return first


USERS_BEHIND = ["start gradients", "start users", "await gradients", "await users"]
USERS_AFTER = ["start gradients", "await gradients", "start users", "await users"]


@pytest.mark.parametrize(
    ("strategy", "expected"), [("wait_free", USERS_BEHIND), ("after_backward", USERS_AFTER)]
)
def test_who_has_used_what_is_added_up_behind_the_last_bucket_where_all_start_as_soon_as_they_may(
    strategy, expected
):
    assert collectives_of_a_pass(strategy) == expected
