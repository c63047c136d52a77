"""Mixed precision on virtual GPUs: kernels of CUDA take types together that those of the CPU refuse."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import (
    FullyShardedDataParallel,
    MixedPrecision,
    MixedPrecisionPolicy,
    fully_shard,
)

from collectives.virtual import run
from collectives.virtual.computation import Roofline
from collectives.virtual.gpu.mixed_types import in_one_type
from sim.files.device_file import load_device

SHORT = torch.bfloat16


def on_gpus(script: Callable[[int], Any], num_ranks: int, fake: bool) -> list[Any]:
    compute = Roofline(replace(load_device("h100"), kind="gpu"))
    return run(script, num_ranks, "dgx-h100", compute=compute, fake=fake).results


def fsdp1(model: nn.Module) -> nn.Module:
    return FullyShardedDataParallel(
        model, mixed_precision=MixedPrecision(SHORT, SHORT, SHORT), use_orig_params=True
    )


def fsdp2(model: nn.Module) -> nn.Module:
    return fully_shard(model, mp_policy=MixedPrecisionPolicy(SHORT, torch.float32))


@pytest.mark.costly
@pytest.mark.filterwarnings("ignore:Accessing the data pointer of FakeTensor")
@pytest.mark.parametrize("shard", [fsdp1, fsdp2])
def test_sharded_training_in_bfloat16_takes_as_long_with_data_as_without(
    shard: Callable[[nn.Module], nn.Module],
) -> None:
    def train(rank: int) -> tuple[list[float], list[float]]:
        dist.init_process_group()
        torch.cuda.set_device(rank)
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0)
        model = shard(nn.Sequential(layer, nn.LayerNorm(16), nn.GroupNorm(1, 5), nn.RMSNorm(16)).cuda())
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)
        inputs, losses, instants = torch.randn(2, 5, 16).cuda(), [], []
        for _ in range(3):
            loss = model(inputs).float().sub(1).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            instants.append(time.perf_counter())
        return losses, instants

    known, unknown = on_gpus(train, 2, fake=False), on_gpus(train, 2, fake=True)

    assert [instants for _, instants in known] == [instants for _, instants in unknown]
    for losses, _ in known:
        assert losses[0] > losses[1] > losses[2]


@pytest.mark.parametrize("layer", [nn.LayerNorm(8), nn.GroupNorm(2, 8), nn.BatchNorm1d(8), nn.RMSNorm(8)])
def test_a_normalization_layer_in_bfloat16_has_the_gradients_of_one_in_float32(layer: nn.Module) -> None:
    inputs = torch.randn(16, 8, generator=torch.Generator().manual_seed(0))

    def gradients(device: str, dtype: torch.dtype) -> list[torch.Tensor]:
        given = inputs.detach().to(device, dtype).requires_grad_()
        own = type(layer)(2, 8) if isinstance(layer, nn.GroupNorm) else type(layer)(8)
        own.to(device, dtype)(given).float().pow(3).sum().backward()
        return [tensor.grad.float().cpu() for tensor in (given, *own.parameters())]

    found = on_gpus(lambda rank: gradients("cuda", SHORT), 1, fake=False)[0]

    for own, expected in zip(found, gradients("cpu", torch.float32), strict=True):
        torch.testing.assert_close(own, expected, rtol=0.15, atol=0.5)


def test_what_a_gpu_refuses_in_two_types_is_refused_with_data() -> None:
    multiply = torch.ops.aten.mm.default

    assert in_one_type(multiply, (torch.ones(2, 2), torch.ones(2, 2, dtype=SHORT)), {}) is NotImplemented
