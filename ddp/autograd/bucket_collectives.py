"""The collectives of a bucket's journey, in place on its memory."""

from __future__ import annotations

import torch

from collectives.communicators.communicator import Communicator
from collectives.execution.work import Work
from ddp.reduction.strategies import plan

ROOT = 0
"""The rank to which and from which rooted collectives go."""


def own_part(tensor: torch.Tensor, communicator: Communicator) -> torch.Tensor:
    """Return this rank's part of *tensor*, which has one dimension and consists of equal parts."""
    numel = tensor.numel() // communicator.world_size
    return tensor[communicator.rank * numel :][:numel]


def start(collective: str, payload: torch.Tensor, communicator: Communicator) -> Work:
    """Start a sum, or a distribution, of *payload*; what scatters and gathers uses each rank's own part."""
    match collective:
        case plan.ALL_REDUCE:
            return communicator.all_reduce(payload, op="sum", async_op=True)
        case plan.REDUCE_SCATTER:
            own = own_part(payload, communicator)
            return communicator.reduce_scatter(own, payload, op="sum", async_op=True)
        case plan.ALL_GATHER:
            return communicator.all_gather(payload, own_part(payload, communicator), async_op=True)
        case plan.REDUCE:
            return communicator.reduce(payload, ROOT, op="sum", async_op=True)
        case plan.BROADCAST:
            return communicator.broadcast(payload, ROOT, async_op=True)
    raise AssertionError(f"no bucket travels by {collective}")
