"""Tests that run in every order of events, or under seeds: they fail in the one in which they would."""

import pytest
import torch
import torch.distributed as dist

from sim.errors import DeadlockError
from testbed.testing import DependsOnTimeError, VirtualCluster, on_ranks


def store():
    return dist.distributed_c10d._get_default_store()


def test_an_assertion_that_holds_in_one_order_fails_in_another_and_both_are_shown():
    @on_ranks(3, orders="all")
    def test(rank):
        dist.init_process_group()
        if rank == 0:
            assert dist.recv(torch.ones(1)) == 1
            dist.recv(torch.ones(1))
        else:
            dist.send(torch.ones(1), 0)

    with pytest.raises(AssertionError, match="2 == 1") as caught:
        test()

    note = caught.value.__notes__[0].splitlines()
    assert note[:2] == ["in this order of events:", "order 1 ends:"]
    assert any("takes the message of rank 1" in line for line in note)
    assert any(line.startswith("order 2 ends in AssertionError") for line in note)
    assert "takes the message of rank 2" in note[-1]


def test_what_holds_in_every_order_passes_and_runs_in_each():
    seen = set()

    @on_ranks(3, orders="all")
    def test(rank):
        dist.init_process_group()
        seen.add((rank, store().add("rank", 1)))

    test()

    assert len(seen) == 9


def test_a_hang_in_one_order_is_found(virtual_cluster):
    def work(rank):
        dist.init_process_group()
        if store().add("rank", 1) == 1 or rank == 1:
            dist.barrier()

    with pytest.raises(DeadlockError, match="1 of 2 ranks wait"):
        virtual_cluster(ranks=2, orders="all").run(work)


@on_ranks(3, seeds=6)
def test_a_sum_is_the_same_under_every_seed(rank):
    dist.init_process_group("gloo")
    total = torch.tensor([float(rank)])
    dist.all_reduce(total)
    assert total == 3


def first_to_come(rank):
    dist.init_process_group("gloo")
    if rank:
        dist.send(torch.tensor([float(rank)]), 0)
        return []
    return [dist.recv(torch.zeros(1)) for _ in range(2)]


def test_a_function_that_depends_on_who_comes_first_fails_with_the_seed():
    with pytest.raises(DependsOnTimeError, match=r"returned \[2, 1\], without faults \[1, 2\]") as caught:
        VirtualCluster(3, seeds=20).run(first_to_come)

    seed = int(str(caught.value).partition("seeds=[")[2].partition("]")[0])
    with pytest.raises(DependsOnTimeError, match=f"under seed {seed}:"):
        VirtualCluster(3, seeds=[seed]).run(first_to_come)


@pytest.mark.parametrize("kind", [AssertionError, DeadlockError])
def test_what_fails_under_a_seed_names_it(kind):
    def trusts_in_order(rank):
        in_order = first_to_come(rank) in ([], [1, 2])
        assert in_order or kind is DeadlockError
        if not in_order:
            dist.recv(torch.zeros(1))

    with pytest.raises(kind) as caught:
        VirtualCluster(3, seeds=20).run(trusts_in_order)

    assert any("under seed " in note for note in caught.value.__notes__)


@pytest.mark.parametrize(
    ("named", "wrong"),
    [
        ("orders", {"orders": "some"}),
        ("orders", {"orders": "all", "compute": "h100"}),
        ("seeds", {"seeds": -1}),
        ("seeds", {"seeds": [-3]}),
        ("seeds", {"seeds": 3, "orders": "all"}),
        ("check", {"check": "all"}),
        ("check", {"check": "replicas", "orders": "all"}),
    ],
)
@pytest.mark.parametrize("refusing", [on_ranks, VirtualCluster])
def test_orders_seeds_and_checks_that_cannot_be_are_refused(named, wrong, refusing):
    with pytest.raises(ValueError, match=named):
        refusing(3, **wrong)
