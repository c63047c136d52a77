"""Collectives by whichever is fastest at each size: the vendor's own, or one of our programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from collectives.catalogue.selectors import Selector
from collectives.communicators.communicator import Communicator
from collectives.communicators.native import VENDOR_DTYPES, NativeCommunicator
from collectives.communicators.program_communicator import ProgramCommunicator
from collectives.communicators.reduction import ReduceOp
from collectives.execution.work import Work


class ChoosingCommunicator:
    """A `collectives.communicators.communicator.Communicator` that asks *selector* who carries out each call.

    Calls on both sides are in flight together.  A wait for the vendor first completes our programs
    that were started before: they need this rank to advance, and peers may be waiting for that.

    Args:
        native: hands calls to the vendor.
        programs: carries them out by programs; also those of dtypes that the vendor does not take.
        selector: decides by collective and size, on every rank alike.
    """

    def __init__(self, native: NativeCommunicator, programs: ProgramCommunicator, selector: Selector) -> None:
        self.native = native
        self.programs = programs
        self.selector = selector
        self.rank = programs.rank
        self.world_size = programs.world_size
        self.clock = programs.clock
        self.moves_by_itself = False
        self._in_flight: list[Work] = []

    def all_reduce(self, tensor: torch.Tensor, op: ReduceOp = "sum", async_op: bool = False) -> Work:
        """Reduce *tensor* over all ranks, in place."""
        return self._carry(
            "all_reduce", tensor, tensor.nbytes, async_op, lambda by: by.all_reduce(tensor, op, async_op=True)
        )

    def broadcast(self, tensor: torch.Tensor, root: int = 0, async_op: bool = False) -> Work:
        """Replace *tensor* by that of *root*, in place."""
        return self._carry(
            "broadcast", tensor, tensor.nbytes, async_op, lambda by: by.broadcast(tensor, root, async_op=True)
        )

    def all_gather(self, output: torch.Tensor, tensor: torch.Tensor, async_op: bool = False) -> Work:
        """Gather equal *tensor*s into *output*."""
        return self._carry(
            "all_gather",
            tensor,
            output.nbytes,
            async_op,
            lambda by: by.all_gather(output, tensor, async_op=True),
        )

    def reduce(
        self, tensor: torch.Tensor, root: int = 0, op: ReduceOp = "sum", async_op: bool = False
    ) -> Work:
        """Reduce *tensor* over all ranks, in place on *root*; elsewhere it stays as it is."""
        return self._carry(
            "reduce", tensor, tensor.nbytes, async_op, lambda by: by.reduce(tensor, root, op, async_op=True)
        )

    def reduce_scatter(
        self, output: torch.Tensor, tensor: torch.Tensor, op: ReduceOp = "sum", async_op: bool = False
    ) -> Work:
        """Reduce *tensor*, of ``world_size`` equal parts; each rank's *output* is its own part."""
        return self._carry(
            "reduce_scatter",
            tensor,
            tensor.nbytes,
            async_op,
            lambda by: by.reduce_scatter(output, tensor, op, async_op=True),
        )

    def gather(
        self, output: torch.Tensor | None, tensor: torch.Tensor, root: int = 0, async_op: bool = False
    ) -> Work:
        """Gather equal *tensor*s into *output* on *root*."""
        return self._carry(
            "gather",
            tensor,
            tensor.nbytes * self.world_size,
            async_op,
            lambda by: by.gather(output, tensor, root, async_op=True),
        )

    def scatter(
        self, output: torch.Tensor, tensor: torch.Tensor | None, root: int = 0, async_op: bool = False
    ) -> Work:
        """Give each rank its part of *root*'s *tensor* as *output*."""
        return self._carry(
            "scatter",
            output,
            output.nbytes * self.world_size,
            async_op,
            lambda by: by.scatter(output, tensor, root, async_op=True),
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
        return self._carry(
            "all_to_all",
            tensor,
            tensor.nbytes,
            async_op,
            lambda by: by.all_to_all(output, tensor, async_op=True),
        )

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

    def _carry(
        self,
        collective: str,
        tensor: torch.Tensor,
        nbytes: int,
        async_op: bool,
        start: Callable[[Communicator], Work],
    ) -> Work:
        """Let the side that is fastest at *nbytes* bytes *start* the call."""
        self._in_flight = [work for work in self._in_flight if work.completed_ps is None]
        work: Work
        if tensor.dtype in VENDOR_DTYPES and self.selector.select(collective, nbytes) is None:
            work = _AfterPrograms(start(self.native), self._in_flight)
        else:
            work = start(self.programs)
            self._in_flight.append(work)
        if not async_op:
            work.wait()
        return work


class _AfterPrograms:
    """A call in the vendor's library, and our programs that were started before it."""

    def __init__(self, work: Work, before: Sequence[Work]) -> None:
        self.work = work
        self.before = list(before)

    @property
    def completed_ps(self) -> int | None:
        return self.work.completed_ps

    def wait(self, timeout: float | None = None) -> None:
        for earlier in self.before:
            earlier.wait(timeout)
        self.before.clear()
        self.work.wait(timeout)

    def is_completed(self) -> bool:
        for earlier in self.before:
            earlier.is_completed()
        return self.work.is_completed()
