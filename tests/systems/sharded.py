"""Parameters spread over ranks: FSDP of both generations, tensor and sequence parallel, and mixtures."""

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy, fully_shard
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from tests.systems.training import batch, network, part_of, sgd, train, whole


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


COLUMNS_THEN_ROWS = {"0": ColwiseParallel(), "2": RowwiseParallel()}


def columns_then_rows(rank: int, world_size: int) -> list[torch.Tensor]:
    """Split the first layer by columns, the second by rows; all ranks see the whole batch."""
    mesh = init_device_mesh("cpu", (world_size,))
    model = parallelize_module(network(), mesh, COLUMNS_THEN_ROWS)
    train(model, sgd(model.parameters()), *batch())
    return whole(model.parameters())


def block() -> nn.Sequential:
    """Return a normalisation between two pairs of layers."""
    torch.manual_seed(3)
    return nn.Sequential(
        nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 4)
    ).double()


def by_sequence(rank: int, world_size: int) -> list[torch.Tensor]:
    """Normalise each rank's part of the sequence between layers that are split."""
    mesh = init_device_mesh("cpu", (world_size,))
    model = parallelize_module(
        block(),
        mesh,
        {
            "0": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
            "1": SequenceParallel(use_local_output=True),
            "2": ColwiseParallel(input_layouts=Shard(1)),
            "4": RowwiseParallel(output_layouts=Replicate()),
        },
    )
    train(model, sgd(model.parameters()), *sequences())
    return whole(model.parameters())


def sequences() -> tuple[torch.Tensor, torch.Tensor]:
    inputs, targets = batch()
    return inputs.view(2, 4, 4), targets.view(2, 4, 4)


def by_sequence_alone(rank: int, world_size: int) -> list[torch.Tensor]:
    model = block()
    train(model, sgd(model.parameters()), *sequences())
    return whole(model.parameters())


def with_sharded_data(rank: int, world_size: int) -> list[torch.Tensor]:
    """Split layers over the rows of a mesh, and FSDP2 along its columns."""
    mesh = init_device_mesh("cpu", (2, world_size // 2), mesh_dim_names=("data", "tensor"))
    model = parallelize_module(network(), mesh["tensor"], COLUMNS_THEN_ROWS)
    for layer in (*model[::2], model):
        fully_shard(layer, mesh=mesh["data"])
    train(model, sgd(model.parameters()), *part_of(mesh.get_local_rank("data"), 2))
    return whole(model.parameters())


def redistributed(rank: int, world_size: int) -> list[torch.Tensor]:
    """Spread a tensor along one dimension, then another, multiply, and put it together again."""
    mesh = init_device_mesh("cpu", (world_size,))
    tensor = torch.arange(24.0).view(4, 6)
    rows = distribute_tensor(tensor, mesh, [Shard(0)])
    columns = rows.redistribute(mesh, [Shard(1)])
    product = columns @ distribute_tensor(tensor.t().contiguous(), mesh, [Shard(0)])
    return whole([rows, columns, product])


def redistributed_alone(rank: int, world_size: int) -> list[torch.Tensor]:
    tensor = torch.arange(24.0).view(4, 6)
    return [tensor, tensor, tensor @ tensor.t()]
