"""Works that C++ keeps when Python has dropped them: whoever waits in C++ gets an answer."""

import gc
import re
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed import _functional_collectives as functional

from tests.collectives.torch_backend.rank_threads import on_ranks

STUB = Path(torch.__file__).parent / "_C" / "_distributed_c10d.pyi"


def test_torch_takes_a_work_in_no_other_way_than_those_of_this_file():
    taking = re.findall(r"def (\w+)\((?:[^()]|\([^()]*\))*\bwork: Work\b", STUB.read_text())

    assert taking == ["_set_forward_pass_work_handle", "_register_work"]


@pytest.mark.parametrize("divide_by_initial", [False, True])
def test_a_reducer_waits_for_the_work_of_the_forward_pass(divide_by_initial):
    def work(rank):
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1, bias=False))
        with model.join(divide_by_initial_world_size=divide_by_initial):
            for _ in range(1 + rank):
                model.zero_grad()
                model(torch.full((1, 2), 1.0 + rank)).sum().backward()
                gc.collect()
        return model.module.weight.grad[0, 0].item()

    last = 2.0 / (2 if divide_by_initial else 1)

    assert on_ranks(2, work).results[1] == last


def test_wait_tensor_waits_for_a_work_that_was_registered():
    def work(rank):
        tensor = torch.ones(2)
        torch._C._distributed_c10d._register_work(tensor, dist.all_reduce(tensor, async_op=True))
        gc.collect()
        return functional.wait_tensor(tensor).tolist()

    assert on_ranks(2, work).results == [[2.0, 2.0]] * 2


def test_a_work_in_a_box_can_be_waited_for():
    def work(rank):
        tensor = torch.ones(2)
        box = dist.all_reduce(tensor, async_op=True).boxed()
        gc.collect()
        torch._C._distributed_c10d.Work.unbox(box).wait()
        return tensor.tolist()

    assert on_ranks(2, work).results == [[2.0, 2.0]] * 2


@pytest.mark.parametrize(
    "gather",
    [
        lambda tensor, group, out: torch.ops._c10d_functional.all_gather_into_tensor(tensor, 2, group),
        lambda tensor, group, out: torch.ops._c10d_functional.all_gather_into_tensor_out(
            tensor, 2, group, out=out
        ),
    ],
    ids=["new tensor", "given tensor"],
)
def test_an_operator_keeps_what_a_group_returns(gather):
    def work(rank):
        result = gather(torch.full((2,), float(rank)), dist.group.WORLD.group_name, torch.empty(4))
        gc.collect()
        return torch.ops._c10d_functional.wait_tensor(result).tolist()

    assert on_ranks(2, work).results == [[0.0, 0.0, 1.0, 1.0]] * 2
