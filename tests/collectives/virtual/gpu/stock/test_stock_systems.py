"""Stock systems on virtual CUDA tensors: without data, and folded, they take the time of a run with data."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import (
    FullStateDictConfig,
    FullyShardedDataParallel,
    StateDictType,
    fully_shard,
)
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn.parallel import DistributedDataParallel

from collectives.virtual import run
from collectives.virtual.computation import Roofline
from collectives.virtual.gpu.values import value_of
from sim.files.device_file import load_device

pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns of much that its own code does


def trained(model: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> None:
    optimizer = optimizer or torch.optim.AdamW(model.parameters())
    for _ in range(2):
        model(torch.randn(4, 8, device="cuda")).square().mean().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()


def layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 8)).cuda()


def ddp() -> None:
    trained(DistributedDataParallel(layers()))


def zero() -> None:
    from torch.distributed.optim import ZeroRedundancyOptimizer  # it warns when it is imported

    model = DistributedDataParallel(layers())
    trained(model, ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=0.1))


def fsdp2() -> None:
    model = layers()
    for layer in (model[0], model[3]):
        fully_shard(layer)
    fully_shard(model)
    trained(model)


def hsdp() -> None:
    model = layers()
    fully_shard(model, mesh=init_device_mesh("cuda", (2, 2), mesh_dim_names=("replicate", "shard")))
    trained(model)


def pipeline() -> None:
    stage, stages = dist.get_rank(), dist.get_world_size()
    part = PipelineStage(layers(), stage, stages, torch.device("cuda", stage))
    schedule = Schedule1F1B(part, 4, loss_fn=nn.functional.mse_loss)
    batch = torch.randn(8, 8, device="cuda")
    given = (batch,) if stage == 0 else ()
    schedule.step(*given, **({"target": batch} if stage == stages - 1 else {}))


def synchronized_batch_norm() -> None:
    model = nn.Sequential(nn.Conv1d(4, 6, 3), nn.BatchNorm1d(6), nn.Conv1d(6, 4, 3, padding=2)).cuda()
    trained(DistributedDataParallel(nn.SyncBatchNorm.convert_sync_batchnorm(model)))


def copied() -> None:
    model = DistributedDataParallel(layers())
    trained(copy.deepcopy(model.module))


def context_parallelism() -> None:
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    query, key, value = parts = [
        torch.randn(2, 4, 32, 16, device="cuda", dtype=torch.bfloat16) for _ in "qkv"
    ]
    with context_parallel(mesh, buffers=parts, buffer_seq_dims=[2] * 3, no_restore_buffers=set(parts)):
        for part in parts:
            part.requires_grad_()
        nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True).sum().backward()


def divided_attention_and_loss() -> None:
    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    heads = distribute_tensor(torch.randn(2, 4, 16, 8, device="cuda"), mesh, [Shard(1)]).requires_grad_()
    nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True).sum().backward()
    scores = distribute_tensor(torch.randn(4, 16, device="cuda"), mesh, [Shard(1)]).requires_grad_()
    with loss_parallel():
        nn.functional.cross_entropy(scores, torch.arange(4, device="cuda")).backward()


def full_state() -> None:
    model = FullyShardedDataParallel(layers(), use_orig_params=True)
    trained(model)
    kept = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT, kept):
        model.state_dict()
    trained(model)


SYSTEMS = [
    ddp, zero, fsdp2, hsdp, pipeline, synchronized_batch_norm, copied, context_parallelism,
    divided_attention_and_loss, full_state,
]  # fmt: skip


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.__name__)
def test_without_data_it_takes_the_time_of_a_run_with_data(system: Callable[[], None]) -> None:
    def script(rank: int) -> None:
        dist.init_process_group("nccl")
        torch.cuda.set_device(rank)
        torch.manual_seed(0)
        system()
        dist.destroy_process_group()

    model = Roofline(replace(load_device("h100"), kind="gpu"))
    with_data, without = (run(script, 4, "dgx-h100", compute=model, fake=fake) for fake in (False, True))

    assert without.times_ps == with_data.times_ps


def test_a_full_state_of_the_cpu_has_the_values_of_the_model() -> None:
    def script(rank: int) -> tuple[Any, ...]:
        dist.init_process_group("nccl")
        torch.cuda.set_device(rank)
        torch.manual_seed(0)
        model = layers()
        whole = {name: tensor.cpu() for name, tensor in model.state_dict().items()}
        model = FullyShardedDataParallel(model)
        kept = FullStateDictConfig(offload_to_cpu=True)
        with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT, kept):
            return whole, model.state_dict()

    model = Roofline(replace(load_device("h100"), kind="gpu"))
    whole, full = run(script, 2, "dgx-h100", compute=model).results[0]

    assert {tensor.device.type for tensor in full.values()} == {"cpu"}
    assert all((full[name].numpy() == tensor.numpy()).all() for name, tensor in whole.items())


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
