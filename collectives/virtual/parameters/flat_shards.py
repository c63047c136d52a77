"""Shards of FSDP1, torch's ``FullyShardedDataParallel``: plain tensors, which do not say what they are of."""

from __future__ import annotations

import sys
from typing import Any

from torch import nn

from collectives.virtual.parameters.held import Placed
from collectives.virtual.parameters.state import own_name
from sim.cluster import current_rank_thread

_MODULE = "torch.distributed.fsdp.fully_sharded_data_parallel"


def flat_shards(model: object) -> dict[str, Placed]:
    """Return where the shards of FSDP1 lie that this rank holds of the parameters of *model*, by their names.

    Hybrid sharding has each shard once on every node; full sharding has each on one rank alone.  What is not
    sharded is not among them.
    """
    fsdp: Any = sys.modules.get(_MODULE)
    rank_thread = current_rank_thread()
    if fsdp is None or rank_thread is None or not isinstance(model, nn.Module):
        return {}
    placed: dict[int, Placed] = {}
    for part in model.modules():
        handle = getattr(part, "_handle", None) if isinstance(part, fsdp.FullyShardedDataParallel) else None
        if handle is None or not handle.uses_sharded_strategy:
            continue
        flat, between = handle.flat_param, getattr(part, "_inter_node_pg", None)
        mesh = ("FSDP1",), (handle.world_size,)
        coordinates = (handle.rank, rank_thread.rank) if between is None else (handle.rank,)
        placed[id(flat)] = Placed(mesh, tuple(flat._unpadded_unsharded_size), None, coordinates)
        for parameter, shape in zip(flat._params or (), flat._shapes, strict=False):
            placed[id(parameter)] = Placed(mesh, tuple(shape), None, coordinates)
    return {
        own_name(name): placed[id(parameter)]
        for name, parameter in model.named_parameters()
        if id(parameter) in placed
    }
