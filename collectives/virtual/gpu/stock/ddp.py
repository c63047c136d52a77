"""Data parallelism on virtual CUDA tensors: DistributedDataParallel, SyncBatchNorm, ZeroRedundancyOptimizer.

C++ compares the shapes of parameters among ranks by reading a tensor's memory, so it gets their values; where
a GPU is modelled it compares nothing, at no time.  And it measures passes on CUDA with events of a real
device, so logging data have no times of these.

The forward pass of SyncBatchNorm leaves out statistics of ranks with an empty batch: a mask that it reads
from what it has gathered.  Without data no rank's batch is taken to be empty.

ZeroRedundancyOptimizer gives each rank the parameters of its own share, which is noted, as ranks may be
folded.  Its module is not imported for this, as that takes a third of a second; the class under it is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch.nn.parallel.distributed as ddp
from torch import Tensor
from torch._C._distributed_c10d import Logger
from torch.distributed.algorithms.join import Joinable
from torch.nn.modules._functions import SyncBatchNorm

from collectives.virtual.folding.divisions import Shares, note_division
from collectives.virtual.gpu.accelerator import CudaDevices, InstantGpu
from collectives.virtual.gpu.charged_execution import ChargedExecution
from collectives.virtual.gpu.dispatch_mode import execution_here
from collectives.virtual.gpu.replacements import on_cuda_ranks, on_methods
from collectives.virtual.gpu.values import value_of
from collectives.virtual.isolation.patching import Replacement


def replacements() -> Iterator[Replacement]:
    """Yield what stands for torch's own."""
    name = "_verify_param_shape_across_processes"
    yield ddp, name, on_cuda_ranks(getattr(ddp, name), _verifying(getattr(ddp, name)))
    yield Logger, "set_runtime_stats_and_log", on_methods(_set_stats, _log)
    yield SyncBatchNorm, "forward", staticmethod(on_methods(_forward, _of_whole_batches))
    yield Joinable, "__init__", _init


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


_forward: Any = SyncBatchNorm.forward


def _of_whole_batches(context: Any, tensor: Any, *rest: Any) -> Any:
    """Return the output, where masks that are not known leave nothing out."""
    execution = execution_here(ChargedExecution)
    if execution is None:  # all data are known
        return _forward(context, tensor, *rest)
    with execution.selecting_all():
        return _forward(context, tensor, *rest)


_init_joinable = Joinable.__init__


def _init(joinable: Any) -> None:
    _init_joinable(joinable)
    partition = getattr(joinable, "_partition_parameters", None)
    if partition is None:
        return

    def partitioned(*args: Any) -> Any:
        """Partition parameters, and note how."""
        groups_of_ranks = partition(*args)
        if groups_of_ranks:
            note_division(Shares(tuple(map(_sizes, groups_of_ranks))))
        return groups_of_ranks

    joinable._partition_parameters = partitioned


def _sizes(groups: list[dict[str, Any]]) -> tuple[int, ...]:
    """Return how many elements the parameters of one rank have."""
    return tuple(parameter.numel() for group in groups for parameter in group["params"])
