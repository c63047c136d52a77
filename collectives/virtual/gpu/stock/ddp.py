"""DistributedDataParallel on virtual CUDA tensors."""

from __future__ import annotations

from collections.abc import Iterator

import torch.nn.parallel.distributed as ddp
from torch._C._distributed_c10d import Logger

from collectives.virtual.gpu.replacements import on_methods
from collectives.virtual.isolation.patching import Replacement


def replacements() -> Iterator[Replacement]:
    """Yield what stands for torch's own.

    C++ compares the shapes of parameters among ranks by reading a tensor's memory, and measures passes with
    events of a real device.
    """
    name = "_verify_param_shape_across_processes"
    yield ddp, name, on_methods(getattr(ddp, name), lambda *args, **options: None)
    name = "set_runtime_stats_and_log"
    yield Logger, name, on_methods(getattr(Logger, name), lambda logger: None)
