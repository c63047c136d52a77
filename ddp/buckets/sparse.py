"""The bucket of one sparse gradient: indices and values of all ranks, gathered and added up.

Ranks touch different rows, and different numbers of them.  So they first tell each other how many,
then gather indices and values, padded to the largest number, and each rank adds up the same rows in
the same order: replicas stay equal.  The first exchange is waited for at the launch, so that all
ranks make the same calls in the same order.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import torch

from ddp.errors import NotSupportedError

if TYPE_CHECKING:
    from torch.nn import Parameter

    from collectives.communicators.communicator import Communicator
    from collectives.execution.work import Work


class SparseBucket:
    """One parameter whose gradient is sparse; as `ddp.buckets.flat_bucket.FlatBucket`.

    Args:
        parameter: whose layer says that its gradient is sparse.
        name: of the parameter, for errors.
    """

    def __init__(self, parameter: Parameter, name: str) -> None:
        self.parameters = (parameter,)
        self._name = name
        self.waits = self.is_view = False
        self.contents: torch.Tensor = self._empty()

    @property
    def nbytes(self) -> int:
        """Size in bytes of the dense gradient: an upper bound."""
        (parameter,) = self.parameters
        return parameter.numel() * parameter.element_size()

    def accept(self, reduced: torch.Tensor) -> None:
        """Take *reduced* as the result of the reduction."""
        self.contents = reduced

    def start(self, communicator: Communicator) -> Work:
        """Start the sum over all ranks."""
        return _SparseSum(self, communicator)

    @torch.no_grad()
    def take(self, position: int, divisor: int) -> None:
        """Take the gradient, divided; nothing where there is none.

        Raises:
            NotSupportedError: the gradient is dense.
        """
        grad = self.parameters[position].grad
        if grad is None:
            self.take_nothing(position)
            return
        if grad.layout is not torch.sparse_coo:
            raise NotSupportedError(
                f"the gradient of {self._name} is dense, but its layer has sparse=True; use the layer only "
                "in ways that keep its gradient sparse, or give it sparse=False"
            )
        self.contents = grad.coalesce() if divisor == 1 else grad.coalesce() / divisor

    def take_nothing(self, position: int) -> None:
        """Take a gradient without rows."""
        self.contents = self._empty()

    def give_back(self, untouched: Collection[int] = ()) -> None:
        """Set the parameter's gradient to the sum."""
        if not untouched:
            (parameter,) = self.parameters
            parameter.grad = self.contents

    def adopt(self) -> None:
        """Do nothing: a sparse gradient is no view of anything."""

    def forget(self) -> None:
        """Do nothing: nothing waits to be copied."""

    def _empty(self) -> torch.Tensor:
        (parameter,) = self.parameters
        indices = torch.empty(1, 0, dtype=torch.int64, device=parameter.device)
        values = torch.empty(0, *parameter.shape[1:], dtype=parameter.dtype, device=parameter.device)
        return torch.sparse_coo_tensor(
            indices, values, parameter.shape, is_coalesced=True, check_invariants=False
        )


class _SparseSum:
    """A sparse sum in flight; a `collectives.execution.work.Work`."""

    def __init__(self, bucket: SparseBucket, communicator: Communicator) -> None:
        self._bucket = bucket
        mine = bucket.contents
        world_size = communicator.world_size
        counts = torch.empty(world_size, dtype=torch.int64, device=mine.device)
        communicator.all_gather(counts, torch.tensor([mine._nnz()], dtype=torch.int64, device=mine.device))
        self._counts: Sequence[int] = counts.tolist()
        most = max(self._counts)
        self.completed_ps: int | None = None
        self._works: list[Work] = []
        self._gathered: list[torch.Tensor] = []
        for part in (mine.indices().t(), mine.values()):
            padded = part.new_zeros(most, *part.shape[1:])
            padded[: len(part)] = part
            output = part.new_empty(world_size * most, *part.shape[1:])
            self._gathered.append(output.view(world_size, most, *part.shape[1:]))
            if most:
                self._works.append(communicator.all_gather(output, padded, async_op=True))

    def wait(self, timeout: float | None = None) -> None:
        """Return when the bucket holds the sum."""
        for work in self._works:
            work.wait(timeout)
            self.completed_ps = work.completed_ps
        if self._works:
            indices, values = (
                torch.cat([row[:count] for row, count in zip(rows, self._counts, strict=True)])
                for rows in self._gathered
            )
            shape = self._bucket.parameters[0].shape
            self._bucket.contents = torch.sparse_coo_tensor(
                indices.t(), values, shape, check_invariants=False
            ).coalesce()
            self._works.clear()

    def is_completed(self) -> bool:
        """Advance what can be advanced; return whether the sum is in place."""
        advanced = [work.is_completed() for work in self._works]
        if all(advanced):
            self.wait()
            return True
        return False
