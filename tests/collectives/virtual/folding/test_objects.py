"""Objects that folded ranks give to collectives: each is that of its own rank, or is refused."""

from typing import Any

import pytest
import simpy
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from collectives import NotSupportedError
from collectives.catalogue.selectors import fixed
from collectives.communicators.requests import Request
from collectives.virtual import VirtualRun, end_iteration
from collectives.virtual.folding.classes import Classes, RankClass
from collectives.virtual.group_calls.exchange import Exchanges
from sim import RankError
from tests.collectives.virtual.clusters import Work, on_gpus


def gathered(thing) -> list[Any]:
    things = [None] * dist.get_world_size()
    dist.all_gather_object(things, thing)
    return things


def without_data(work: Work, ranks: int) -> VirtualRun:
    def script(rank):
        dist.init_process_group("nccl")
        torch.cuda.set_device(rank % torch.cuda.device_count())
        return work(rank)

    return on_gpus(script, ranks, fake=True)


def test_objects_that_are_equal_leave_ranks_folded():
    outcome = without_data(lambda rank: gathered("x" * 10_000), 72)

    assert outcome.results == [["x" * 10_000] * 72] * 72
    assert outcome.report.folded == ("ranks 0-71 as rank 0",)


def test_ranks_of_a_small_run_that_give_other_objects_have_a_thread_each():
    outcome = without_data(lambda rank: gathered({"rank": rank}), 8)

    assert outcome.results == [[{"rank": rank} for rank in range(8)]] * 8


def test_ranks_of_a_large_run_that_give_other_objects_are_refused():
    with pytest.raises(RankError, match="ranks 0 and 1 give other objects to all_gather") as raised:
        without_data(lambda rank: gathered(rank), 72)

    assert isinstance(raised.value.__cause__, NotSupportedError)


def test_objects_that_are_not_compared_are_told_of():
    def work(rank):
        layer = nn.Linear(128, 128, device="cuda")
        for _ in range(3):
            dist.all_reduce(layer.weight.data)
            end_iteration()
        gathered(rank)

    outcome = without_data(work, 80)

    assert outcome.report.ranks_simulated == 1
    assert any("objects that they gave" in notice and "test_objects.py:" in notice
               for notice in outcome.report.notices)  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "given", "is_folded"),
    [((1, 128), [0] * 128, True), ((2, 4), [0] * 4 + [4] * 4, False)],
    ids=["the only root of its kind", "roots of groups that were made together"],
)
def test_what_a_root_gives_is_known_to_all_ranks_of_its_group(shape, given, is_folded):
    def work(rank):
        group = init_device_mesh("cuda", shape, mesh_dim_names=("outer", "inner"))["inner"].get_group()
        things = [rank]
        dist.broadcast_object_list(things, group=group, group_src=0)
        return things

    outcome = without_data(work, shape[0] * shape[1])

    assert outcome.results == [[root] for root in given]
    assert bool(outcome.report.folded) == is_folded


def test_a_folded_rank_that_would_have_to_give_something_else_is_refused():
    exchanges, ranks = Exchanges(simpy.Environment(), Classes([RankClass(range(4))])), (0, 1, 2, 3)
    exchanges.classes.partitions.announce(0, ranks)
    request = Request("scatter", 8, torch.float32, output=torch.zeros(2), root=2)

    call = exchanges.join(ranks, (0, 0), 0, request, request.call("ring"), fixed("ring"))

    with pytest.raises(NotSupportedError, match="run with fold off"):
        raise call.error
