"""The optimizer inside the backward pass: a parameter is updated once its bucket has been reduced.

``torch.distributed.optim._apply_optimizer_in_backward`` gives parameters optimizers of their own,
which then run as soon as a gradient is there.  With several ranks that is too early, so their hooks
are taken off, and the optimizers run when the bucket has arrived.  Gradients are None afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import Parameter


def take_over(parameters: Sequence[Parameter]) -> frozenset[int]:
    """Take the optimizers' hooks off; return the indices of the parameters that have optimizers."""
    owners = frozenset(
        index for index, parameter in enumerate(parameters) if hasattr(parameter, "_in_backward_optimizers")
    )
    if owners:
        from torch.distributed.optim.apply_optimizer_in_backward import param_to_optim_hook_handle_map

        for index in owners:
            for handle in param_to_optim_hook_handle_map.get(parameters[index], []):
                handle.remove()
    return owners


@torch.no_grad()
def step(parameters: Sequence[Parameter]) -> None:
    """Run the optimizers of *parameters* on their gradients, and drop these."""
    for parameter in parameters:
        for optimizer in parameter._in_backward_optimizers:  # type: ignore[attr-defined]
            optimizer.step()
        parameter.grad = None
