"""Charges of operations on a GPU's streams, where tensors of the CPU stand for the device's.

Each operation is what CUDA would launch for it (`collectives.virtual.computation.launches`), on the current
stream.  What needs a value of the device makes the host wait for that stream first.  Counters of steps, which
optimizers keep in the host's memory, are the host's work.

Optimizers take the lists of tensors (``foreach``) that they take on CUDA.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from torch.optim import optimizer as torch_optimizer

from collectives.virtual.computation.compiled import Fusing
from collectives.virtual.computation.launches import KernelLaunch, Launches
from collectives.virtual.computation.operations import operation_of, tensors_in, waits_for_data
from collectives.virtual.computation.totals import Totals
from collectives.virtual.isolation.patching import replaced
from collectives.virtual.streams.gpu import Gpu, current_gpu


class OnStreams:
    """Charges the operations of one rank."""

    def __init__(self, gpu: Gpu, launches: Launches, totals: Totals) -> None:
        self._gpu = gpu
        self._launches = launches
        self._totals = totals
        self.fusing = Fusing(gpu, launches, totals)

    def charge(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any, part: str
    ) -> None:
        """Charge a call of the overload *func*, which happens in this *part* of an iteration."""
        gpu = self._gpu
        name = func.overloadpacket.__name__
        if part == "optimizer" and _are_counters((args, result)):
            if name != "_local_scalar_dense":
                gpu.host_work(name, self._launches.host_ps(func, args, kwargs, result))
            return
        if waits_for_data(operation_of(func), args):
            gpu.host_wait(gpu.current, name)
        if self.fusing.takes(func, args, kwargs, result, part):
            return
        self.issue(self._launches.of(func, args, kwargs, result, self.fusing.pads), part)

    def issue(self, launches: Iterable[KernelLaunch], part: str) -> None:
        """Launch kernels on the current stream, in this *part* of an iteration, and add them up."""
        self._gpu.part = part
        for launch in launches:
            self._gpu.launch(launch.name, launch.duration_ps)
            self._totals.add(launch.flops, launch.nbytes, launch.dtype, part, launch.unmodelled)


def _are_counters(value: Any) -> bool:
    """Return whether *value* has tensors, and all of them are of one element without a dimension."""
    dims = {tensor.dim() for tensor in tensors_in(value)}
    return dims == {0}


def lists_of_tensors() -> AbstractContextManager[None]:
    """Return a context in which optimizers of ranks on a GPU take lists of tensors, as those of CUDA."""
    name = "_get_foreach_kernels_supported_devices"
    original = getattr(torch_optimizer, name)

    def devices() -> list[str]:
        supported: list[str] = original()
        return supported if current_gpu() is None else [*supported, "cpu"]

    return replaced([(torch_optimizer, name, devices)])
