"""Children that are forked from a rank after its group was made: they are no ranks, and may do all else."""

import multiprocessing
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from tests.distributed.threads import group_over

pytestmark = pytest.mark.distributed

Call = Callable[[Any, Any], object]
CARRIERS = pytest.mark.parametrize("carrier", ["shm", "gloo"])
CALLS: dict[str, Call] = {
    "all_reduce": lambda group, work: dist.all_reduce(torch.full((4,), 100.0), group=group),
    "broadcast": lambda group, work: dist.broadcast(torch.ones(4), 0, group),
    "send": lambda group, work: dist.send(torch.ones(4), 1, group),
    "irecv": lambda group, work: dist.irecv(torch.ones(4), 1, group),
    "recv from any": lambda group, work: dist.recv(torch.ones(4), None, group),
    "barrier": lambda group, work: dist.barrier(group),
    "monitored_barrier": lambda group, work: dist.monitored_barrier(group),
    "new communicator": lambda group, work: group.connect("ring"),
    "wait for the parent's": lambda group, work: work.wait(),
    "ask for the parent's": lambda group, work: work.is_completed(),
}


def in_child(call: Callable[[], object]) -> str:
    """Return what *call* comes to in a child that is forked now."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def run():
        try:
            theirs.send(f"returned {call()}")
        except BaseException as error:
            theirs.send(f"{type(error).__name__}: {error}")

    child = context.Process(target=run)
    child.start()
    assert ours.poll(15), "the child hangs"
    said = ours.recv()
    child.join()
    return said


def calls_in_children(rank: int, world_size: int, carrier: str, is_used: bool) -> tuple[dict[str, str], Any]:
    group = group_over(carrier, timeout=20)
    if is_used:
        dist.all_reduce(torch.ones(4), group=group)
    total, said = torch.full((4,), rank + 1.0), {}
    work = dist.all_reduce(total, group=group, async_op=True) if rank == 0 else None
    if rank == 0:
        for name, call in CALLS.items():
            said[name] = in_child(lambda call=call: call(group, work))
    dist.barrier()  # so that the call is under way while the children are there
    if rank != 0:
        work = dist.all_reduce(total, group=group, async_op=True)
    work.wait()
    dist.barrier(group)
    return said, total.tolist()


@CARRIERS
@pytest.mark.parametrize("is_used", [True, False])
def test_calls_of_a_forked_child_are_refused_by_name_and_its_rank_goes_on(pool, carrier, is_used):
    (said, total), (_, others) = pool.run(calls_in_children, 2, carrier, is_used)

    assert total == others == [3.0] * 4
    for name in CALLS:
        assert said[name].startswith("NotSupportedError: process "), (name, said[name])
        assert "a rank whose group had been made, and is no rank itself" in said[name]


def groups_in_children(rank: int, world_size: int) -> str:
    said = ""
    if rank == 0:
        said = in_child(lambda: dist.new_group([0], backend="testbed"))
    dist.barrier()
    return said


def test_a_forked_child_makes_no_group_for_its_rank(pool):
    said, _ = pool.run(groups_in_children, 2, backend="testbed")

    assert said.startswith("NotSupportedError: process ")


def loaded_by_workers(rank: int, world_size: int, carrier: str) -> list[Any]:
    group = group_over(carrier, timeout=20)
    loader = DataLoader(range(rank, 8, 2), batch_size=2, num_workers=2, multiprocessing_context="fork")
    sums = []
    for batch in loader:
        dist.all_reduce(batch, group=group)
        sums.append(batch.tolist())
    return sums


@CARRIERS
def test_workers_of_a_data_loader_that_make_no_calls_load_as_ever(pool, carrier):
    assert pool.run(loaded_by_workers, 2, carrier) == [[[1, 5], [9, 13]]] * 2
