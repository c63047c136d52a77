"""DTensor on virtual CUDA tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.utils._python_dispatch import _disable_current_modes

from collectives.virtual.gpu.accelerator import CudaDevices
from collectives.virtual.gpu.replacements import on_cuda_ranks
from collectives.virtual.isolation.patching import Replacement


def replacements() -> Iterator[Replacement]:
    """Yield what stands for torch's own.

    Shapes of a whole tensor are found with a FakeTensorMode of its own, whose tensors ours would take for the
    rank's, and charge it for.
    """
    name = "_propagate_tensor_meta_non_cached"
    yield ShardingPropagator, name, on_cuda_ranks(getattr(ShardingPropagator, name), _shapes_of)


_original = ShardingPropagator._propagate_tensor_meta_non_cached


def _shapes_of(devices: CudaDevices, propagator: ShardingPropagator, schema: Any) -> Any:
    """Return shapes of an operation's results, found without the modes of the rank.

    On device 0, as FakeTensorMode keeps what it finds for all ranks, and takes "cuda" for the current device.
    """
    with _disable_current_modes(), devices.on_device(0):
        return _original(propagator, schema)
