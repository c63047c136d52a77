"""DTensor on virtual CUDA tensors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from torch import Tensor
from torch.distributed.tensor import _sharding_prop
from torch.distributed.tensor._op_schema import OpStrategy
from torch.distributed.tensor._ops import utils as _ops
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.distributed.tensor.placement_types import Shard, _StridedShard
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_leaves

from collectives.virtual.folding.divisions import Rows, note_division
from collectives.virtual.gpu.accelerator import CudaDevices
from collectives.virtual.gpu.replacements import on_cuda_ranks, on_methods
from collectives.virtual.isolation import shardings
from collectives.virtual.isolation.patching import Replacement


def replacements() -> Iterator[Replacement]:
    """Yield what stands for torch's own.

    Shapes of a whole tensor are found with a FakeTensorMode of its own, whose tensors ours would take for the
    rank's, and charge it for.  Shardings are found once for all ranks of an attempt.  And for an operation on
    lists, such as the optimizer's, all tensors are looked through once for each, and each one's shardings are
    found anew though there are few kinds of them: most of the time of a step of a large model.  Where
    dimensions are cut into shards it is said how, so that ranks with unequal ones are told apart.
    """
    if hasattr(ShardingPropagator, shardings.FIND):
        yield ShardingPropagator, shardings.FIND, shardings.of_gpus(_sharding_prop)
    name = "_propagate_tensor_meta_non_cached"
    yield ShardingPropagator, name, on_cuda_ranks(_original, _whole_shapes)
    name = "_propagate_use_strided_shard_flag"
    if hasattr(_sharding_prop, name):
        yield _sharding_prop, name, _looked_through_once(getattr(_sharding_prop, name))
    name = "expand_to_full_mesh_op_strategy"
    yield _ops, name, _kept(getattr(_ops, name))
    yield Shard, "_split_tensor", on_methods(Shard._split_tensor, _split)
    name = "local_shard_size_and_offset"
    yield Shard, name, staticmethod(on_methods(_SIZE_OF_SHARD, _size_of_shard))
    yield _StridedShard, name, on_methods(getattr(_StridedShard, name), _parts(getattr(_StridedShard, name)))


_original = ShardingPropagator._propagate_tensor_meta_non_cached


def _whole_shapes(devices: CudaDevices, propagator: ShardingPropagator, schema: Any) -> Any:
    """Return shapes of the results of an operation on whole tensors, found without the modes of the rank.

    On device 0, as FakeTensorMode keeps what it finds for all ranks, and takes "cuda" for the current device.
    That is not the rank's doing: a rank whose tensors are the CPU's uses no device by it.
    """
    before, devices.index = devices.index, 0
    try:
        with _disable_current_modes():
            return _original(propagator, schema)
    finally:
        devices.index = before


_SPLIT: Any = Shard._split_tensor
_SIZE_OF_SHARD: Any = Shard.local_shard_size_and_offset


def _split(shard: Shard, tensor: Tensor, num_chunks: int, *args: Any, **options: Any) -> Any:
    """Cut a tensor into shards."""
    _note_shards(tensor.size(shard.dim), num_chunks)
    return _SPLIT(shard, tensor, num_chunks, *args, **options)


def _size_of_shard(curr_local_size: int, num_chunks: int, *args: Any, **options: Any) -> Any:
    """Return how long a rank's shard is, and where it begins."""
    _note_shards(curr_local_size, num_chunks)
    return _SIZE_OF_SHARD(curr_local_size, num_chunks, *args, **options)


def _note_shards(size: Any, num_chunks: Any) -> None:
    if isinstance(size, int) and isinstance(num_chunks, int):  # not symbols, in what is compiled
        note_division(Rows(size, num_chunks))


def _looked_through_once(propagate: Callable[[Any, Any], None]) -> Callable[[Any, Any], None]:
    """Return *propagate*, which reads of an operation's tensors only how strided shards are ordered.

    It gets those alone of which the order differs from that of the one before.
    """
    last: list[Any] = [None, None]

    def propagate_use_strided_shard_flag(strategy: Any, schema: Any) -> None:
        if last[0] is not schema:
            last[:] = [schema, SimpleNamespace(args_spec=_differing(schema.args_spec))]
        if last[1].args_spec:
            propagate(strategy, last[1])

    return propagate_use_strided_shard_flag


def _differing(specs: Any) -> list[Any]:
    """Return specifications with strided shards, without those that are ordered as the one before."""
    found: list[Any] = []
    for spec in specs:
        if any(isinstance(placement, _StridedShard) for placement in spec.placements):
            order = spec.use_strided_shard_as_shard_order
            if not found or found[-1].use_strided_shard_as_shard_order != order:
                found.append(spec)
    return found


def _parts(find: Callable[..., Any]) -> Callable[..., Any]:
    """Return *find*, of sizes and offsets of parts of strided shards, which finds each once, without modes.

    Torch cuts up a list of all indices for each, which is most of the time of filling the parameters of a
    model on many ranks: each takes its own part of the random numbers.
    """

    @functools.lru_cache(maxsize=_KEPT)
    def found(*args: Any, **options: Any) -> Any:
        with _disable_current_modes():
            return find(*args, **options)

    def part(*args: Any, **options: Any) -> Any:
        size, offset = found(*args, **options)
        return size, list(offset) if isinstance(offset, list) else offset

    return part


_KEPT = 4096
"""Kinds of calls whose shardings are kept."""


def _kept(expand: Callable[..., Any]) -> Callable[..., Any]:
    """Return *expand*, which finds shardings over a whole mesh, for each kind of arguments once.

    Each rank's mesh is kept for itself: it is equal to others', but has its own groups.
    """
    kept: dict[Any, tuple[Any, Any]] = {}

    def expand_to_full_mesh_op_strategy(mesh: Any, schema: Any, strategies: Any, **options: Any) -> Any:
        try:
            key = (
                id(mesh),
                schema.op,
                tuple(map(_kind_of, tree_leaves((schema.args_schema, schema.kwargs_schema)))),
                tuple(map(tuple, strategies)),
                repr(options),
            )
            found = kept.get(key)
        except TypeError:  # of sizes that are not numbers
            return expand(mesh, schema, strategies, **options)
        if found is None:
            if len(kept) == _KEPT:
                kept.clear()
            found = kept[key] = (mesh, expand(mesh, schema, strategies, **options))
        return found[1]

    return expand_to_full_mesh_op_strategy


def _kind_of(value: Any) -> Any:
    """Return what matters of an argument: of a tensor, how it may be sharded."""
    if isinstance(value, OpStrategy):
        return tuple(strategy.output_specs for strategy in value.strategies)
    return value
