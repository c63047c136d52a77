"""Clipping by the norm, where each rank has all gradients, a part of each, or only rank 0 has them.

Source: ``torch/nn/utils/clip_grad.py`` of torch 2.13; over parts as ``clip_grad_norm_`` of torch's
``FullyShardedDataParallel``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch.nn.utils import get_total_norm

from collectives.communicators.communicator import Communicator
from ddp.errors import DDPError
from ddp.reduction.strategies.strategy import Strategy


@torch.no_grad()
def clip(
    gradients: Sequence[torch.Tensor],
    max_norm: float,
    norm_type: float,
    strategy: Strategy,
    communicator: Communicator,
) -> torch.Tensor:
    """Scale *gradients*, those with which this rank updates, so that the norm of all is at most *max_norm*.

    Every rank calls, and gets the norm that there was.

    Raises:
        DDPError: there is no such norm.
    """
    if not norm_type > 0:
        raise DDPError(f"clip_grad_norm_(): norm_type must be a number above 0, got {norm_type!r}")
    norm = get_total_norm(gradients, norm_type)
    if strategy.shards_update:
        norm = _of_parts(norm, norm_type, communicator)
    elif strategy.updates_on_root:
        communicator.broadcast(norm)
    factor = (max_norm / (norm + 1e-6)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(factor.to(gradient.device))
    return norm


def _of_parts(own: torch.Tensor, norm_type: float, communicator: Communicator) -> torch.Tensor:
    """Return the norm of a vector of which each rank has a part; *own* is that of this rank's."""
    if math.isinf(norm_type):
        communicator.all_reduce(own, op="max")
        return own
    power = own**norm_type
    communicator.all_reduce(power, op="sum")
    return power ** (1 / norm_type)
