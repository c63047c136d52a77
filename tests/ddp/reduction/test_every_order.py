"""The reducers of all ranks in every order of events: no rank waits for ever, and all launch alike."""

import pytest

from collectives.virtual.exploration import explore
from ddp.reduction.overlap import STRATEGIES, resolve_strategy
from ddp.reduction.strategies.plan import Layout, LinearCost, PassTiming
from tests.ddp.reduction.reducers import Reducers


def num_orders(strategy: str, num_buckets: int, num_ranks: int, apart: int = 0) -> int:
    """Run a step in every order that ranks can tell apart, check each, and return how many there are.

    Gradients become ready in the order of buckets, each rank beginning *apart* later than the one before.
    """
    policy = resolve_strategy(strategy)
    sizes, order = [16] * num_buckets, list(range(num_buckets))
    timing = PassTiming(tuple(100 * parameter for parameter in order), LinearCost(10, 100))
    plan = policy.plan(Layout(sizes, ["float32"] * num_buckets, (1,), order, timing))
    starts = [rank * apart % num_buckets for rank in range(num_ranks)]
    gradients = [order[start:] + order[:start] for start in starts]
    count = 0
    for explored in explore(Reducers(plan, policy, gradients).step):
        count += 1
        for rank in explored.outcome:
            assert rank.launched == list(plan.launches)
            assert rank.num_finished == 1
            assert not rank.in_flight
            assert sorted(rank.updated) == (list(range(len(plan.buckets))) if policy.update_after else [])
    return count


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_two_buckets_of_two_ranks_come_through_in_every_order(strategy):
    assert num_orders(strategy, 2, 2) >= num_orders(strategy, 2, 2, apart=1) >= 1


@pytest.mark.parametrize(
    ("strategy", "buckets", "apart", "orders"),
    [
        ("after_backward", 3, 0, 1), ("wait_free", 2, 0, 61), ("wait_free", 4, 1, 133),
        pytest.param("wait_free", 4, 0, 6829, marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_the_orders_of_three_ranks_are_so_many(strategy, buckets, apart, orders):
    assert num_orders(strategy, buckets, 3, apart) == orders
