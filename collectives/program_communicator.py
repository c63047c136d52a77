"""Collectives on tensors, carried out by our programs over a transport."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import torch

from collectives.call import Call
from collectives.chunking import Buffer, Chunking
from collectives.clock import Clock
from collectives.execute import execute
from collectives.program import Algorithm, Program
from collectives.reduction import REDUCE, ReduceOp, check_reduction
from collectives.resolve import resolve_algorithm
from collectives.transports import Transport
from collectives.work import Work


class ProgramCommunicator:
    """A `collectives.communicator.Communicator` over *transport*.

    All-reduce runs *algorithm*; broadcast runs the binomial tree, all-gather the ring.  Results
    are in place when the `Work` has been waited for, and nothing is handed out half-reduced.

    Args:
        transport: moves the messages.
        algorithm: of all-reduce, as `collectives.resolve_algorithm` takes it.
        device: on which a barrier's token lives.
    """

    def __init__(
        self,
        transport: Transport,
        algorithm: str | Program | Algorithm = "ring",
        device: torch.device | str = "cpu",
    ) -> None:
        self.transport = transport
        self.device = torch.device(device)
        self.algorithm = resolve_algorithm(algorithm)
        self._broadcast = resolve_algorithm("tree", "broadcast")
        self._all_gather = resolve_algorithm("ring", "all_gather")
        self._barrier = resolve_algorithm("tree")
        self._sequence = 0

    @property
    def rank(self) -> int:
        """This rank, from 0."""
        return self.transport.rank

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return self.transport.world_size

    @property
    def clock(self) -> Clock:
        """The time in which this rank lives."""
        return self.transport.clock

    def all_reduce(self, tensor: torch.Tensor, op: ReduceOp = "sum", async_op: bool = False) -> Work:
        """Replace *tensor*, of any shape and strides, by its reduction over all ranks.

        Raises:
            NotSupportedError: torch cannot reduce this dtype so, or an average of integers is wanted.
        """
        check_reduction(tensor, op)
        finish = (lambda flat: flat.div_(self.world_size)) if op == "avg" else None
        return self._start(self.algorithm, "all_reduce", tensor, async_op, op=op, finish=finish)

    def broadcast(self, tensor: torch.Tensor, root: int = 0, async_op: bool = False) -> Work:
        """Replace *tensor* by that of rank *root*."""
        if not 0 <= root < self.world_size:
            raise ValueError(f"root must be a rank from 0 to {self.world_size - 1}, got {root}")
        algorithm = self._broadcast.with_parameters(root=root)
        return self._start(algorithm, "broadcast", tensor, async_op, root=root)

    def all_gather(self, output: torch.Tensor, tensor: torch.Tensor, async_op: bool = False) -> Work:
        """Gather every rank's *tensor*, all of one size, into *output*, in the order of ranks."""
        if output.numel() != tensor.numel() * self.world_size or output.dtype != tensor.dtype:
            raise ValueError(
                f"output must hold {self.world_size} × {tensor.numel()} elements of {tensor.dtype}, "
                f"got {output.numel()} of {output.dtype}"
            )
        if not output.is_contiguous():
            raise ValueError("output must be contiguous")
        own = output.detach().view(self.world_size, tensor.numel())[self.rank]
        own.copy_(tensor.detach().reshape(-1))
        return self._start(self._all_gather, "all_gather", output, async_op)

    def barrier(self) -> None:
        """Return when every rank has called."""
        token = torch.zeros(1, dtype=torch.uint8, device=self.device)
        self._start(self._barrier, "barrier", token, async_op=False, op="sum")

    def poll(self) -> None:
        """Advance what is in flight as far as it goes without waiting."""
        self.transport.poll()

    def _start(
        self,
        algorithm: Algorithm,
        collective: str,
        tensor: torch.Tensor,
        async_op: bool,
        *,
        op: str = "",
        root: int | None = None,
        finish: Callable[[torch.Tensor], Any] | None = None,
    ) -> Work:
        call = Call(
            sequence=self._sequence,
            collective=collective,
            algorithm=str(algorithm),
            count=tensor.numel(),
            dtype=str(tensor.dtype).removeprefix("torch."),
            op=op,
            root=root,
        )
        self._sequence += 1
        work = self.transport.start(self._run(algorithm, tensor.detach(), call, finish), call)
        if not async_op:
            work.wait()
        return work

    def _run(
        self,
        algorithm: Algorithm,
        tensor: torch.Tensor,
        call: Call,
        finish: Callable[[torch.Tensor], Any] | None,
    ) -> Generator[Any, Any, None]:
        """Execute on a flat, contiguous buffer; write back what had to be copied for that."""
        flat = tensor.contiguous().view(-1)
        chunking = Chunking(flat.numel(), algorithm.num_chunks(self.world_size), flat.element_size())
        yield from execute(
            algorithm, Buffer(chunking, flat, REDUCE[call.op or "sum"]), self.transport, call.channel()
        )
        if finish is not None:
            finish(flat)
        if flat.data_ptr() != tensor.data_ptr():
            tensor.copy_(flat.view(tensor.shape))
