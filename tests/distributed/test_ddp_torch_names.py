"""Private names of torch's DDP that its tests, and code of users, read on a wrapped module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ddp
from tests.distributed.pool import WorkerPool

BOTH: tuple[Callable[..., Any], ...] = (DistributedDataParallel, ddp.DistributedDataParallel)


class Branches(nn.Module):
    """The second layer is used only where the input says so."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
        self.register_buffer("count", torch.zeros(2))

    def forward(self, x: torch.Tensor, both: bool) -> torch.Tensor:
        y: torch.Tensor = self.first(x)
        return self.second(y) if both else y


def answers(model: Any) -> list[Any]:
    parameters, sparse = model._build_params_for_reducer()
    return [
        model._build_debug_param_to_name_mapping(parameters),
        sparse,
        model.bucket_bytes_cap,
        model.bucket_bytes_cap_list,
        model.broadcast_bucket_size,
        model.device_type,
        model.is_multi_device_module,
        list(model.named_module_buffers),
        [buffer.tolist() for buffer in model.modules_buffers],
        len(list(model._get_data_parallel_params(model.module))),
    ]


def read_names(rank: int, world_size: int) -> list[list[Any]]:
    told = []
    for make in BOTH:
        torch.manual_seed(0)
        model = make(Branches(), find_unused_parameters=True, bucket_cap_mb_list=[1, 2])
        seen = answers(model)
        for step in range(4):
            both = step > 1 and rank == 0
            model(torch.ones(1, 2), both).sum().backward()
            seen += [model.reducer._get_local_used_map().tolist(), model.reducer._ddp_graph_static()]

        buffers = [torch.full((3,), float(rank)), torch.full((1,), rank)]
        model._default_broadcast_coalesced(buffers, authoritative_rank=1)
        told.append([*seen, [buffer.tolist() for buffer in buffers], model.reducer._rebuild_buckets()])
    return told


def test_private_names_answer_as_torchs(pool: WorkerPool) -> None:
    for theirs, ours in pool.run(read_names, 2):
        assert ours == theirs


def leave_undefined(rank: int, world_size: int, options: dict[str, Any]) -> list[Any]:
    told = []
    for make in BOTH:
        model = make(nn.Linear(2, 2), **options)
        undefined: Any = torch._C._functions.UndefinedGrad()  # type: ignore[attr-defined]
        undefined(model(torch.ones(1, 2)).sum()).backward()
        told.append(model.module.weight.grad)
    return told


@pytest.mark.parametrize("options", [{"find_unused_parameters": True}, {"static_graph": True}], ids=str)
def test_a_gradient_that_autograd_leaves_undefined_stays_none(
    pool: WorkerPool, options: dict[str, Any]
) -> None:
    assert pool.run(leave_undefined, 2, options) == [[None, None]] * 2


def count_reduced(rank: int, world_size: int, skips: bool) -> list[int]:
    told = []
    for make in BOTH:
        options = {"find_unused_parameters": True, "skip_all_reduce_unused_params": skips}
        model = make(Branches(), bucket_cap_mb=1e-6, **options)
        for _ in range(3):
            model(torch.ones(1, 2), False).sum().backward()
        told.append(model._get_ddp_logging_data()["num_buckets_reduced"])
    return told


@pytest.mark.parametrize("skips", [False, True])
def test_as_many_buckets_are_told_to_be_reduced_as_with_torch(pool: WorkerPool, skips: bool) -> None:
    for theirs, ours in pool.run(count_reduced, 2, skips):
        assert ours == theirs
