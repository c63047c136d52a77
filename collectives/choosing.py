"""Collectives by whichever is fastest at each size: the vendor's own, or one of our programs."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from collectives.choice import Selector
from collectives.clock import Clock
from collectives.communicator import Communicator
from collectives.native import VENDOR_DTYPES, NativeCommunicator
from collectives.program_communicator import ProgramCommunicator
from collectives.reduction import ReduceOp
from collectives.work import Work


class ChoosingCommunicator:
    """A `collectives.communicator.Communicator` that asks *selector* who carries out each call.

    Calls on either side are in flight together; each side completes its own in order.

    Args:
        native: hands calls to the vendor.
        programs: carries them out by programs; also those of dtypes that the vendor does not take.
        selector: decides by collective and size, on every rank alike.
    """

    def __init__(self, native: NativeCommunicator, programs: ProgramCommunicator, selector: Selector) -> None:
        self.native = native
        self.programs = programs
        self.selector = selector

    @property
    def rank(self) -> int:
        """This rank, from 0."""
        return self.programs.rank

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.programs.world_size

    @property
    def clock(self) -> Clock:
        """The time in which this rank lives."""
        return self.programs.clock

    def all_reduce(self, tensor: torch.Tensor, op: ReduceOp = "sum", async_op: bool = False) -> Work:
        """Reduce *tensor* over all ranks, in place."""
        return self._for("all_reduce", tensor, tensor.nbytes).all_reduce(tensor, op, async_op)

    def broadcast(self, tensor: torch.Tensor, root: int = 0, async_op: bool = False) -> Work:
        """Replace *tensor* by that of *root*, in place."""
        return self._for("broadcast", tensor, tensor.nbytes).broadcast(tensor, root, async_op)

    def all_gather(self, output: torch.Tensor, tensor: torch.Tensor, async_op: bool = False) -> Work:
        """Gather equal *tensor*s into *output*."""
        return self._for("all_gather", output, output.nbytes).all_gather(output, tensor, async_op)

    def reduce(
        self, tensor: torch.Tensor, root: int = 0, op: ReduceOp = "sum", async_op: bool = False
    ) -> Work:
        """Reduce *tensor* over all ranks, in place on *root*; elsewhere it stays as it is."""
        return self._for("reduce", tensor, tensor.nbytes).reduce(tensor, root, op, async_op)

    def reduce_scatter(
        self, output: torch.Tensor, tensor: torch.Tensor, op: ReduceOp = "sum", async_op: bool = False
    ) -> Work:
        """Reduce *tensor*, of ``world_size`` equal parts; each rank's *output* is its own part."""
        return self._for("reduce_scatter", tensor, tensor.nbytes).reduce_scatter(output, tensor, op, async_op)

    def gather(
        self, output: torch.Tensor | None, tensor: torch.Tensor, root: int = 0, async_op: bool = False
    ) -> Work:
        """Gather equal *tensor*s into *output* on *root*."""
        return self._for("gather", tensor, tensor.nbytes * self.world_size).gather(
            output, tensor, root, async_op
        )

    def scatter(
        self, output: torch.Tensor, tensor: torch.Tensor | None, root: int = 0, async_op: bool = False
    ) -> Work:
        """Give each rank its part of *root*'s *tensor* as *output*."""
        return self._for("scatter", output, output.nbytes * self.world_size).scatter(
            output, tensor, root, async_op
        )

    def all_to_all(
        self,
        output: torch.Tensor,
        tensor: torch.Tensor,
        output_splits: Sequence[int] | None = None,
        input_splits: Sequence[int] | None = None,
        async_op: bool = False,
    ) -> Work:
        """Exchange parts: part q of *tensor* goes to rank q, where it becomes part r of *output*.

        Sizes of parts differ between ranks and choose nobody: such an exchange is ours.
        """
        if output_splits is not None or input_splits is not None:
            return self.programs.all_to_all(output, tensor, output_splits, input_splits, async_op)
        chosen = self._for("all_to_all", tensor, tensor.nbytes)
        return chosen.all_to_all(output, tensor, async_op=async_op)

    def send(self, tensor: torch.Tensor, peer: int, tag: int = 0, async_op: bool = False) -> Work:
        """Send *tensor* to rank *peer*."""
        return self.programs.send(tensor, peer, tag, async_op)

    def recv(self, tensor: torch.Tensor, peer: int, tag: int = 0, async_op: bool = False) -> Work:
        """Replace *tensor* by what rank *peer* sends under *tag*."""
        return self.programs.recv(tensor, peer, tag, async_op)

    def barrier(self) -> None:
        """Return when every rank has called."""
        self.programs.barrier()

    def poll(self) -> None:
        """Advance what is in flight as far as it goes without waiting."""
        self.programs.poll()

    def _for(self, collective: str, tensor: torch.Tensor, nbytes: int) -> Communicator:
        if tensor.dtype in VENDOR_DTYPES and self.selector.select(collective, nbytes) is None:
            return self.native
        return self.programs
