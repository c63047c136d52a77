"""The seam under `ddp`: collectives on tensors.

A `Communicator` knows tensors, dtypes and reductions and nothing of gradients.  Two kinds ship:
`collectives.communicators.program_communicator` runs the programs of `collectives.algorithms` over a
transport; `collectives.communicators.native` hands each call to the vendor's own collective.
`collectives.communicators.connection` gives the one that fits a process group.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import torch

    from collectives.communicators.reduction import ReduceOp
    from collectives.execution.clock import Clock
    from collectives.execution.work import Work


class Communicator(Protocol):
    """Collectives over the ranks of one group; every rank makes the same calls in the same order.

    Messages from one rank to another are matched in the order of their calls, for each tag; they do
    not wait for collectives in flight, nor collectives for them.

    All calls return a `Work`, and have already waited for it unless ``async_op``.

    When a collective fails, its call, or the wait for its `Work`, raises a `CollectiveError` on every
    rank that takes part; so does every later call.  What the tensors of that call then hold is
    undefined: collectives work in place, and may have got half-way.
    """

    @property
    def rank(self) -> int:
        """This rank, from 0."""

    @property
    def world_size(self) -> int:
        """Number of ranks."""

    @property
    def clock(self) -> Clock:
        """The time in which this rank lives."""

    @property
    def moves_by_itself(self) -> bool:
        """Whether what is in flight goes on while nobody polls."""

    def all_reduce(self, tensor: torch.Tensor, op: ReduceOp = "sum", async_op: bool = False) -> Work:
        """Reduce *tensor* over all ranks, in place."""

    def broadcast(self, tensor: torch.Tensor, root: int = 0, async_op: bool = False) -> Work:
        """Replace *tensor* by that of *root*, in place."""

    def all_gather(self, output: torch.Tensor, tensor: torch.Tensor, async_op: bool = False) -> Work:
        """Gather equal *tensor*s into *output*, whose first dimension is ``world_size`` times longer."""

    def reduce(
        self, tensor: torch.Tensor, root: int = 0, op: ReduceOp = "sum", async_op: bool = False
    ) -> Work:
        """Reduce *tensor* over all ranks, in place on *root*; elsewhere it stays as it is."""

    def reduce_scatter(
        self, output: torch.Tensor, tensor: torch.Tensor, op: ReduceOp = "sum", async_op: bool = False
    ) -> Work:
        """Reduce *tensor*, of ``world_size`` equal parts; each rank's *output* is its own part."""

    def gather(
        self, output: torch.Tensor | None, tensor: torch.Tensor, root: int = 0, async_op: bool = False
    ) -> Work:
        """Gather equal *tensor*s into *output*, ``world_size`` times as long, on *root*."""

    def scatter(
        self, output: torch.Tensor, tensor: torch.Tensor | None, root: int = 0, async_op: bool = False
    ) -> Work:
        """Give each rank its part of *root*'s *tensor*, of ``world_size`` equal parts, as *output*."""

    def all_to_all(
        self,
        output: torch.Tensor,
        tensor: torch.Tensor,
        output_splits: Sequence[int] | None = None,
        input_splits: Sequence[int] | None = None,
        async_op: bool = False,
    ) -> Work:
        """Exchange parts: part q of *tensor* goes to rank q, where it becomes part r of *output*.

        Parts are equal, or of the sizes along the first dimension that are given.
        """

    def send(self, tensor: torch.Tensor, peer: int, tag: int = 0, async_op: bool = False) -> Work:
        """Send *tensor* to rank *peer*; complete when it has been received."""

    def recv(self, tensor: torch.Tensor, peer: int, tag: int = 0, async_op: bool = False) -> Work:
        """Replace *tensor* by what rank *peer* sends under *tag*, of one size and dtype."""

    def barrier(self) -> None:
        """Return when every rank has called."""

    def poll(self) -> None:
        """Advance what is in flight as far as it goes without waiting."""
