"""Parameters spread over ranks: torch's FSDP of both generations, and its hybrid with replicas."""

from __future__ import annotations

import torch
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

from tests.systems.training import network, part_of, sgd, train, whole


def flat_parameters(rank: int, world_size: int) -> list[torch.Tensor]:
    """Train FSDP1: every layer's parameters in one flat tensor."""
    model = FullyShardedDataParallel(
        network(),
        auto_wrap_policy=ModuleWrapPolicy({torch.nn.Linear}),
        sharding_strategy=ShardingStrategy.FULL_SHARD,
        device_id=torch.device("cpu"),
    )
    train(model, sgd(model.parameters()), *part_of(rank, world_size))
    with FullyShardedDataParallel.summon_full_params(model):
        return whole(model.parameters())


def each_parameter(rank: int, world_size: int, mesh: DeviceMesh | None = None) -> list[torch.Tensor]:
    """Train FSDP2: every parameter a DTensor."""
    mesh = mesh or init_device_mesh("cpu", (world_size,))
    model = network()
    for layer in (*model[::2], model):
        fully_shard(layer, mesh=mesh)
    train(model, sgd(model.parameters()), *part_of(rank, world_size))
    held = sum(parameter.to_local().numel() for parameter in model.parameters())
    assert held < sum(parameter.numel() for parameter in model.parameters())
    return whole(model.parameters())


def replicated_shards(rank: int, world_size: int) -> list[torch.Tensor]:
    """Train FSDP2 within the rows of a mesh, replicated along its columns."""
    mesh = init_device_mesh("cpu", (2, world_size // 2), mesh_dim_names=("replicate", "shard"))
    return each_parameter(rank, world_size, mesh)
