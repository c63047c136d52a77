"""Parts of parameters that a rank holds: of a plain one all, of one sharded by DTensor or FSDP1 its shard."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.distributed.tensor.placement_types import Placement, _StridedShard

from collectives.errors import NotSupportedError
from collectives.virtual.gpu.values import value_of
from collectives.virtual.parameters.state import own_name
from sim.cluster import current_rank_thread

_DIGEST_BYTES = 16


@dataclass(frozen=True)
class Placed:
    """Where the shard of a rank lies in the whole parameter.

    Attributes:
        mesh: names and sizes of the dimensions of the mesh.
        shape: of the whole.
        index: of the shard's elements in each dimension of the whole; None where no elements are its own,
            or FSDP1 has divided them.
        coordinates: of the rank, in those dimensions of the mesh along which the parameter is divided; where
            FSDP1 shards over all ranks, with the rank of the run.
    """

    mesh: tuple[tuple[str, ...], tuple[int, ...]]
    shape: tuple[int, ...]
    index: tuple[range | tuple[int, ...], ...] | None
    coordinates: tuple[int, ...]


@dataclass(frozen=True)
class Held:
    """What a rank holds of a parameter, or of its gradient.

    Attributes:
        shape: of what it holds.
        dtype: such as ``torch.float32``.
        digest: of the bytes.
        placed: where it lies in the whole; None: it is the whole.
        value: a copy, where values are kept.
        is_zero: whether all of it is zero.
    """

    shape: tuple[int, ...]
    dtype: str
    digest: bytes
    placed: Placed | None
    value: Tensor | None
    is_zero: bool

    @property
    def kind(self) -> tuple[object, ...]:
        """What ranks that hold the same part of the same parameter have alike."""
        return self.shape, self.dtype, self.placed

    @classmethod
    def of(cls, tensor: Tensor, keep_value: bool, placed: Placed | None = None) -> Held:
        """Return what this rank holds of *tensor*; no dispatch mode may be active.

        Args:
            tensor: a DTensor says itself where its shard lies.
            keep_value: whether to keep a copy.
            placed: where it lies in the whole, if it is a plain tensor and a shard.

        Raises:
            NotSupportedError: it has no values.
        """
        local: Any = tensor._local_tensor if isinstance(tensor, DTensor) else tensor
        value = value_of(local)
        if value is None:
            raise NotSupportedError(
                f"a parameter of shape {tuple(local.shape)} has no values here, so there is nothing to "
                "compare; run with data, without --fake"
            )
        value = value.detach()
        value = value.to_dense() if value.layout != torch.strided else value
        flat = value.resolve_conj().resolve_neg().contiguous().reshape(-1)
        content = flat.view(torch.uint8).numpy().data if flat.numel() else b""
        return cls(
            shape=tuple(local.shape),
            dtype=str(value.dtype),
            digest=hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest(),
            placed=_placed(tensor) if isinstance(tensor, DTensor) else placed,
            value=value.clone() if keep_value else None,
            is_zero=not bool(value.any()),
        )


def _placed(tensor: DTensor) -> Placed | None:
    """Return where the shard of this rank lies; None where every rank holds the whole."""
    mesh, placements = tensor.device_mesh, tensor.placements
    if all(isinstance(placement, Replicate) for placement in placements):
        return None
    coordinate = mesh.get_coordinate() or [0] * mesh.ndim
    divided = [
        own for own, placement in zip(coordinate, placements, strict=True) if not placement.is_replicate()
    ]
    index: tuple[range | tuple[int, ...], ...] | None = None
    if all(type(placement) in (Shard, Replicate) for placement in placements):
        shape, offset = compute_local_shape_and_global_offset(tensor.shape, mesh, placements)
        index = tuple(range(begin, begin + length) for begin, length in zip(offset, shape, strict=True))
    elif all(isinstance(placement, Shard | _StridedShard | Replicate) for placement in placements):
        index = tuple(
            _in_strides(size, dim, coordinate, mesh.shape, placements)
            for dim, size in enumerate(tensor.shape)
        )
    return Placed(
        mesh=(tuple(mesh.mesh_dim_names or ()), tuple(mesh.shape)),
        shape=tuple(tensor.shape),
        index=index,
        coordinates=tuple(divided),
    )


def _in_strides(
    size: int,
    dim: int,
    coordinate: Sequence[int],
    mesh_shape: Sequence[int],
    placements: Sequence[Placement],
) -> tuple[int, ...]:
    """Return which elements of dimension *dim*, of so many, a rank has: FSDP2 divides what others have."""
    index = torch.arange(size).reshape(*[1] * dim, size)
    for own, parts, placement in zip(coordinate, mesh_shape, placements, strict=True):
        if isinstance(placement, Shard | _StridedShard) and placement.dim == dim:
            index = placement._split_tensor(index, parts, with_padding=False)[0][own]
    return tuple(index.flatten().tolist())


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
