"""Memory of torch's own systems on virtual CUDA devices: cases counted by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel

from collectives.virtual import Roofline, run
from collectives.virtual.gpu.values import value_of
from tests.collectives.virtual.gpu.memory_cases import (
    ACTIVATION,
    BATCH,
    LAYERS,
    WEIGHT,
    WIDTH,
    memory_of,
    stack,
    with_and_without_data,
)


def test_buckets_of_ddp_are_buffers_of_collectives() -> None:
    def script(rank: int) -> None:
        dist.init_process_group("nccl")
        model = DistributedDataParallel(stack(), device_ids=[0], gradient_as_bucket_view=False)
        for _ in range(2):
            model(torch.ones(BATCH, WIDTH, device="cuda")).sum().backward()
            assert torch.cuda.memory_allocated() == 3 * LAYERS * WEIGHT  # no bucket of before lives on

    memory = memory_of(script, 2, fake=True)

    assert memory.by_category["collective_buffers"] == LAYERS * WEIGHT
    assert memory.by_category["gradients"] == LAYERS * WEIGHT


@with_and_without_data
def test_fsdp_holds_its_shards_and_gathers_one_layer_at_a_time(fake: bool) -> None:
    ranks = 4
    held: list[int] = []

    def script(rank: int) -> None:
        dist.init_process_group("nccl")
        torch.cuda.set_device(rank)
        model = stack()
        for layer in model:
            fully_shard(layer, reshard_after_forward=True)
        fully_shard(model)
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):
            model(torch.ones(BATCH, WIDTH, device="cuda")).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        torch.cuda.synchronize()
        if rank == 0:
            held.append(torch.cuda.memory_allocated())

    memory_of(script, ranks, fake=fake)

    [after] = held
    assert 3 * LAYERS * WEIGHT // ranks <= after < 3 * LAYERS * WEIGHT // ranks + 8192


def test_mixed_precision_of_fsdp_gathers_in_sixteen_bits() -> None:
    def script(rank: int) -> None:
        dist.init_process_group("nccl")
        torch.cuda.set_device(rank)
        model = stack()
        precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
        for layer in model:
            fully_shard(layer, mp_policy=precision)
        fully_shard(model, mp_policy=precision)
        torch.cuda.reset_peak_memory_stats()
        with torch.no_grad():
            model(torch.ones(BATCH, WIDTH, device="cuda"))
        shards = LAYERS * WEIGHT // 4
        sixteen = WEIGHT // 2
        assert torch.cuda.max_memory_allocated() <= shards + 6 * sixteen + 4 * ACTIVATION

    memory_of(script, 4, fake=True)


@pytest.mark.parametrize("compute", [None, Roofline("h100")], ids=["no model", "h100"])
def test_what_is_gathered_and_freed_takes_no_memory_of_the_host(compute: Roofline | None) -> None:
    def work(rank: int) -> tuple[int, int]:
        dist.init_process_group("nccl")
        model: Any = fully_shard(nn.Linear(8, 8, bias=False).cuda())
        sizes = []
        for reshards in (False, True):
            model.set_reshard_after_backward(reshards)
            model(torch.ones(1, 8, device="cuda")).sum().backward()
            [parameter] = model._get_fsdp_state()._fsdp_param_group.fsdp_params
            [whole] = parameter.all_gather_outputs
            value: Any = value_of(whole)
            sizes.append(value.untyped_storage().nbytes())
        return sizes[0], sizes[1]

    assert run(work, 2, "dgx-h100", compute=compute).results == [(256, 0)] * 2
