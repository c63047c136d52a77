"""Charges of operations on a GPU's streams, where tensors of the CPU stand for the device's.

Each operation is what CUDA would launch for it (`collectives.virtual.computation.launches`), on the current
stream.  What needs a value of the device makes the host wait for that stream first.  Counters of steps, which
optimizers keep in the host's memory, are the host's work.

Optimizers take the lists of tensors (``foreach``) that they take on CUDA.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.optim import optimizer as torch_optimizer

from collectives.virtual.computation.compiled import Fusing
from collectives.virtual.computation.launches import Launches
from collectives.virtual.computation.operations import tensors_in
from collectives.virtual.computation.totals import Totals
from collectives.virtual.isolation.patching import replaced
from collectives.virtual.streams.gpu import Gpu, current_gpu

_ANSWERS = {
    "_local_scalar_dense", "_unique2", "bincount", "equal", "is_nonzero", "masked_select", "nonzero",
    "nonzero_numpy", "unique_consecutive", "unique_dim", "unique_dim_consecutive",
}  # fmt: skip
"""Operations whose result the host has to know: a number, or a shape that depends on values."""


def makes_host_wait(func: Any, args: Sequence[Any]) -> bool:
    """Return whether the host needs to know values of the device to carry out the overload *func*."""
    name: str = func.overloadpacket.__name__
    if name in _ANSWERS:
        return True
    if name in ("index", "index_put", "index_put_", "_index_put_impl_"):
        return any(isinstance(index, torch.Tensor) and index.dtype in _MASKS for index in args[1])
    return name == "repeat_interleave" and len(args) == 1


_MASKS = (torch.bool, torch.uint8)


class OnStreams:
    """Charges the operations of one rank.

    Args:
        gpu: of the rank.
        launches: of its device.
        totals: are added up.
    """

    def __init__(self, gpu: Gpu, launches: Launches, totals: Totals) -> None:
        self._gpu = gpu
        self._launches = launches
        self._totals = totals
        self._fusing = Fusing(gpu, launches, totals)

    def charge(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any, part: str
    ) -> None:
        """Charge a call of the overload *func*, which happens in this *part* of an iteration."""
        gpu, totals = self._gpu, self._totals
        name = func.overloadpacket.__name__
        if part == "optimizer" and _are_counters((args, result)):
            if name != "_local_scalar_dense":
                gpu.host_work(name, self._launches.host_ps(func, args, kwargs, result))
            return
        if makes_host_wait(func, args):
            gpu.host_wait(gpu.current, name)
        if self._fusing.takes(func, args, kwargs, result, part):
            return
        gpu.part = part
        for launch in self._launches.of(func, args, kwargs, result, self._fusing.pads):
            gpu.launch(launch.name, launch.duration_ps)
            totals.add(launch.flops, launch.nbytes, launch.dtype, part, launch.unmodelled)


def _are_counters(value: Any) -> bool:
    """Return whether *value* has tensors, and all of them are of one element without a dimension."""
    dims = {tensor.dim() for tensor in tensors_in(value)}
    return dims == {0}


def lists_of_tensors(on_gpu: bool) -> AbstractContextManager[None]:
    """Return a context in which optimizers of ranks on a GPU take lists of tensors, as those of CUDA."""
    name = "_get_foreach_kernels_supported_devices"
    original = getattr(torch_optimizer, name)

    def devices() -> list[str]:
        supported: list[str] = original()
        return supported if current_gpu() is None else [*supported, "cpu"]

    return replaced([(torch_optimizer, name, devices)] if on_gpu else [])
