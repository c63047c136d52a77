"""SyncBatchNorm on virtual CUDA tensors.

Its forward pass leaves out statistics of ranks with an empty batch, which is a matter of data: a mask that it
reads from what it has gathered.  Without data no rank's batch is taken to be empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch.nn.modules._functions import SyncBatchNorm

from collectives.virtual.gpu.charged_execution import ChargedExecution
from collectives.virtual.gpu.dispatch_mode import execution_here
from collectives.virtual.gpu.replacements import on_methods
from collectives.virtual.isolation.patching import Replacement


def replacements() -> Iterator[Replacement]:
    """Yield what stands for torch's own."""
    yield SyncBatchNorm, "forward", staticmethod(on_methods(_forward, _of_whole_batches))


_forward: Any = SyncBatchNorm.forward


def _of_whole_batches(context: Any, tensor: Any, *rest: Any) -> Any:
    """Return the output, where masks that are not known leave nothing out."""
    execution = execution_here(ChargedExecution)
    if execution is None:  # all data are known
        return _forward(context, tensor, *rest)
    with execution.selecting_all():
        return _forward(context, tensor, *rest)
