"""Sharded checkpoints: saved by some ranks, loaded by as many, spread otherwise."""

import tempfile
from typing import Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_state_dict,
    set_model_state_dict,
    set_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from tests.systems.training import adam, network, part_of, train, trained_alone_with_adam, whole


def saved_and_loaded(rank: int, world_size: int) -> list[Any]:
    """Train with FSDP2 for two steps, save, load into a fresh model, and train the third."""
    mesh = init_device_mesh("cpu", (world_size,))
    paths = [tempfile.mkdtemp() if rank == 0 else ""]
    dist.broadcast_object_list(paths, src=0)

    def fresh():
        model = network()
        fully_shard(model, mesh=mesh)
        return model, adam(model.parameters())

    model, optimizer = fresh()
    train(model, optimizer, *part_of(rank, world_size), num_steps=2)
    state = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
    dcp.save(state, checkpoint_id=paths[0])

    model, optimizer = fresh()
    state = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
    dcp.load(state, checkpoint_id=paths[0])
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    train(model, optimizer, *part_of(rank, world_size), num_steps=1)
    return whole(model.parameters())


def from_rank_0(rank: int, world_size: int) -> list[Any]:
    """Train what rank 0 alone has loaded, and gather it again on rank 0."""
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    loaded = network().state_dict() if rank == 0 else {}
    model = network()
    for parameter in model.parameters():
        parameter.data.zero_()
    fully_shard(model, mesh=init_device_mesh("cpu", (world_size,)))
    set_model_state_dict(model, loaded, options=options)
    train(model, adam(model.parameters()), *part_of(rank, world_size))
    saved = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    return whole(saved.values())


def on_rank_0(rank: int, world_size: int) -> list[Any]:
    """Train three steps in one process; only rank 0 saves."""
    return trained_alone_with_adam(rank, world_size) if rank == 0 else []
