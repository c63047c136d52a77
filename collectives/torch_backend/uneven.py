"""Gathering and reduce-scattering of tensors that differ in size from rank to rank: one call for each rank.

Source: ``ProcessGroupNCCL::allgather`` and ``reduce_scatter`` of torch, which broadcast or reduce one rank's
tensor after another; Gloo refuses them.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from collectives.communicators.communicator import Communicator
from collectives.communicators.reduction import ReduceOp
from collectives.execution.work import Work
from collectives.torch_backend.rows import copy_rows


def are_alike(parts: Sequence[torch.Tensor]) -> bool:
    """Return whether *parts* are all of one size."""
    return len({part.numel() for part in parts}) <= 1


def all_gather(communicator: Communicator, parts: Sequence[torch.Tensor], tensor: torch.Tensor) -> list[Work]:
    """Start gathering every rank's *tensor* into *parts*, of which each has the size of its rank's."""
    own = parts[communicator.rank]
    copy_rows([(own, own)], [tensor.data.reshape(-1)])
    return [communicator.broadcast(part, root, async_op=True) for root, part in enumerate(parts)]


def reduce_scatter(communicator: Communicator, parts: Sequence[torch.Tensor], op: ReduceOp) -> list[Work]:
    """Start reducing *parts*, each to its rank and in place there."""
    return [communicator.reduce(part, root, op, async_op=True) for root, part in enumerate(parts)]
