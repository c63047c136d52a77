"""State beside the parameters of a model: buffers, what optimizers keep of each parameter, loss scalers.

Two kinds of buffers differ between ranks in a right run.  Those that DistributedDataParallel broadcasts
before a forward pass part between two broadcasts, and rank 0's count.  Running statistics of norms are each
rank's own, of its part of the batch.  Neither is compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.optim import Optimizer

_STATISTICS = frozenset({"running_mean", "running_var", "num_batches_tracked"})
"""Names of buffers of norms, those of torch and those that are written after them."""

_WRAPPERS = frozenset({"module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod"})
"""Names that wrappers such as DistributedDataParallel put before those of the model's own."""

BROADCAST = "buffers that DistributedDataParallel broadcasts from rank 0 before a forward pass"
STATISTICS = "running statistics of norms, which are each rank's own"


class StateName(NamedTuple):
    """Name of a tensor beside the parameters.

    Attributes:
        what: such as ``buffer 0.mean``, ``exp_avg`` or ``scale of the GradScaler``.
        parameter: of which an optimizer keeps it; "" if of none.
        is_buffer: whether it is a buffer of the model.
    """

    what: str
    parameter: str = ""
    is_buffer: bool = False

    def __str__(self) -> str:
        return f"{self.what} of {self.parameter}" if self.parameter else self.what


def own_name(name: str) -> str:
    """Return the name of a parameter or buffer without those of wrappers."""
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def unwrapped(module: nn.Module) -> nn.Module:
    """Return the model that wrappers such as DistributedDataParallel hold."""
    while True:
        inner = [child for name, child in module.named_children() if name in _WRAPPERS]
        if len(inner) != 1 or next(iter(module._parameters), None) is not None:
            return module
        module = inner[0]


def buffers_of(module: nn.Module) -> tuple[dict[StateName, Tensor], dict[str, list[str]]]:
    """Return the buffers of a model that replicas have alike, and the names of others by why they do not."""
    wrapped: list[Any] = [part for part in module.modules() if getattr(part, "broadcast_buffers", False)]
    broadcast = {
        id(buffer)
        for ddp in wrapped  # torch's or ours
        for name, buffer in ddp.module.named_buffers()
        if name not in ddp.parameters_to_ignore
    }
    compared: dict[StateName, Tensor] = {}
    left_out: dict[str, list[str]] = {}
    for name, buffer in module.named_buffers():
        if id(buffer) in broadcast:
            left_out.setdefault(BROADCAST, []).append(own_name(name))
        elif name.rpartition(".")[-1] in _STATISTICS:
            left_out.setdefault(STATISTICS, []).append(own_name(name))
        else:
            compared[StateName(f"buffer {own_name(name)}", is_buffer=True)] = buffer
    return compared, left_out


def kept_by(
    optimizers: Collection[Optimizer], scalers: Mapping[GradScaler, Optimizer], names: Mapping[int, str]
) -> Iterator[tuple[StateName, Tensor]]:
    """Yield what optimizers and scalers keep of parameters."""
    for optimizer in optimizers:
        for parameter, kept in optimizer.state.items():
            name = names.get(id(parameter))
            for what, value in kept.items():
                if name is not None and isinstance(value, Tensor | int | float):
                    yield StateName(str(what), name), torch.as_tensor(value)
    for scaler, optimizer in scalers.items():
        if any(id(own) in names for group in optimizer.param_groups for own in group["params"]):
            for what, value in (("scale", scaler._scale), ("growth tracker", scaler._growth_tracker)):
                if value is not None:
                    yield StateName(f"{what} of the {type(scaler).__name__}"), value
