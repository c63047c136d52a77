"""Sum of sparse tensors, of which every rank holds other elements: gathered, and added in the order of ranks.

Source: ``AsyncSparseAllreduceWork`` of torch's ProcessGroupGloo, which does the same in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from collectives.communicators.reduction import op_of
from collectives.errors import NotSupportedError


class Gathering(Protocol):
    """As much of a process group as the sum needs."""

    def size(self) -> int:
        """Return the number of ranks."""

    def gather_parts(self, parts: Sequence[torch.Tensor], tensor: torch.Tensor) -> Any:
        """Gather *tensor* of each rank into *parts*, of whatever size."""


def sparse_all_reduce(group: Gathering, tensor: torch.Tensor, op: Any) -> None:
    """Replace *tensor*, which is sparse (COO), by its sum over all ranks; it is there when this returns.

    Raises:
        NotSupportedError: another reduction than a sum is wanted, or another layout is given.
    """
    if tensor.layout != torch.sparse_coo or op_of(op) != "sum":
        raise NotSupportedError(
            f"a tensor of layout {tensor.layout} cannot be reduced by {op_of(op)}; only the sum of "
            f"tensors of layout torch.sparse_coo can; make it dense"
        )
    own = tensor.detach().coalesce()
    counts = [torch.zeros(1, dtype=torch.int64, device=tensor.device) for _ in range(group.size())]
    group.gather_parts(counts, torch.full_like(counts[0], own._nnz())).wait()
    sizes = [int(count) for count in counts]

    indices = _gathered(group, own.indices().t().contiguous(), sizes)
    values = _gathered(group, own.values(), sizes)
    total = torch.zeros_like(own)
    for place, value in zip(indices, values, strict=True):
        total = total + torch.sparse_coo_tensor(place.t(), value, own.shape, check_invariants=False)
    with torch.no_grad():
        tensor.copy_(total.coalesce())


def _gathered(group: Gathering, rows: torch.Tensor, sizes: list[int]) -> list[torch.Tensor]:
    """Return the rows of every rank, which has as many as *sizes* says; an empty part is not sent."""
    parts = [rows.new_empty(size, *rows.shape[1:]) for size in sizes]
    if any(part.numel() for part in parts):
        group.gather_parts(parts, rows).wait()
    return parts
