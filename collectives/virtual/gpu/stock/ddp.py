"""DistributedDataParallel on virtual CUDA tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch.nn.parallel.distributed as ddp
from torch import Tensor
from torch._C._distributed_c10d import Logger

from collectives.virtual.gpu.accelerator import CudaDevices
from collectives.virtual.gpu.instant import InstantGpu
from collectives.virtual.gpu.replacements import on_cuda_ranks, on_methods
from collectives.virtual.gpu.values import value_of
from collectives.virtual.isolation.patching import Replacement


def replacements() -> Iterator[Replacement]:
    """Yield what stands for torch's own.

    C++ compares the shapes of parameters among ranks by reading a tensor's memory, so it gets their values;
    where a GPU is modelled it compares nothing, at no time.  And it measures passes on CUDA with events of a
    real device, so logging data have no times of these.
    """
    name = "_verify_param_shape_across_processes"
    yield ddp, name, on_cuda_ranks(getattr(ddp, name), _verifying(getattr(ddp, name)))
    name = "set_runtime_stats_and_log"
    yield Logger, name, on_methods(getattr(Logger, name), _log)


def _log(logger: Logger) -> None:
    """Log what is known after an iteration; the last of that, times, is for a module on the CPU alone."""
    try:
        _set_stats(logger)
    except RuntimeError as error:
        if "timer_" not in str(error):
            raise


_set_stats = Logger.set_runtime_stats_and_log


def _verifying(verify: Callable[..., None]) -> Callable[..., None]:
    """Return what compares the values of parameters."""

    def verified(devices: CudaDevices, group: Any, parameters: Sequence[Tensor], *rest: Any) -> None:
        if isinstance(devices.gpu, InstantGpu):
            verify(group, [value_of(parameter) for parameter in parameters], *rest)

    return verified
