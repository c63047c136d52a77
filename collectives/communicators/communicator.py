"""Communicator: collectives and messages on tensors, the seam under `ddp`.

A `Communicator` knows tensors, dtypes and reductions and nothing of gradients.  It checks every call and
makes a `Request` of it, which its `Launcher` carries out in one of three ways:

    collectives.communicators.programs   the programs of `collectives.algorithms`, over a transport
    collectives.communicators.native     the vendor's own collective
    collectives.communicators.auto       whichever of the two is faster at this size

`collectives.communicators.connection` gives the one that fits a process group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, TypeVar, final

import torch

from collectives.communicators.any_source import AnySource, FirstSource, ReceiveWork, WaitAny
from collectives.communicators.checks import (
    check_equal_parts,
    check_parts,
    check_peer,
    check_root,
    check_splits,
)
from collectives.communicators.dispatch_modes import hidden_from_modes
from collectives.communicators.reduction import ReduceOp, check_reduction
from collectives.communicators.requests import Memory, Request
from collectives.errors import NotSupportedError
from collectives.execution.call import Lane
from collectives.execution.clock import Clock
from collectives.execution.work import Work

SomeWork = TypeVar("SomeWork", bound=Work)


class Launcher(Protocol):
    """A way of carrying out calls between the ranks of one group: the seam under a `Communicator`."""

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

    def launch(self, request: Request) -> Work:
        """Start *request*, and return at once; calls of one lane are started in order.

        What is started puts the result in place by `Request.finish`.

        Raises:
            NotSupportedError: this way has no such collective, or not of this dtype.
            CollectiveError: an earlier call has failed.
        """

    def poll(self) -> None:
        """Advance what is in flight as far as it goes without waiting."""


@final
class Communicator:
    """Collectives over the ranks of one group; every rank makes the same calls in the same order.

    Messages from one rank to another are matched in the order of their calls, for each tag; they do
    not wait for collectives in flight, nor collectives for them.

    All calls return a `Work`, and have already waited for it unless ``async_op``.  Results are in place
    when it has been waited for, and nothing is handed out half-reduced.  Tensors may have any strides.

    When a collective fails, its call, or the wait for its `Work`, raises a `CollectiveError` on every
    rank that takes part; so does every later call.  What the tensors of that call then hold is
    undefined: collectives work in place, and may have got half-way.

    Args:
        launcher: carries the calls out.
        carrier: what carries calls between processes: ``native``, the group's own collectives; ``shm``,
            shared memory; or the group's backend, for programs over its messages.

    Attributes:
        carrier: the same; empty in virtual time.
        rank: this rank, from 0.
        world_size: number of ranks.
        clock: the time in which this rank lives.
        moves_by_itself: whether what is in flight goes on while nobody polls.
    """

    def __init__(self, launcher: Launcher, carrier: str = "") -> None:
        self.launcher = launcher
        self.carrier = carrier
        self.rank = launcher.rank
        self.world_size = launcher.world_size
        self.clock = launcher.clock
        self.moves_by_itself = launcher.moves_by_itself
        self._turn: AbstractContextManager[object] = getattr(launcher, "turn", nullcontext())
        self._num_calls: Counter[Lane] = Counter()
        self._any_source: AnySource | None = None

    def all_reduce(self, tensor: torch.Tensor, op: ReduceOp = "sum", async_op: bool = False) -> Work:
        """Replace *tensor* by its reduction over all ranks.

        Raises:
            NotSupportedError: torch cannot reduce this dtype so, or an average of integers is wanted.
        """
        check_reduction(tensor, op)
        return self._start(
            Request("all_reduce", tensor.numel(), tensor.dtype, output=tensor, op=op), async_op
        )

    def broadcast(self, tensor: torch.Tensor, root: int = 0, async_op: bool = False) -> Work:
        """Replace *tensor* by that of rank *root*.

        Raises:
            ValueError: *root* is no rank.
        """
        check_root(root, self.world_size)
        return self._start(
            Request("broadcast", tensor.numel(), tensor.dtype, output=tensor, root=root), async_op
        )

    def reduce(
        self, tensor: torch.Tensor, root: int = 0, op: ReduceOp = "sum", async_op: bool = False
    ) -> Work:
        """Reduce *tensor* over all ranks, in place on *root*; elsewhere it stays as it is.

        Raises:
            NotSupportedError: as `all_reduce`.
            ValueError: *root* is no rank.
        """
        check_reduction(tensor, op)
        check_root(root, self.world_size)
        given, output = (None, tensor) if self.rank == root else (tensor, None)
        return self._start(
            Request("reduce", tensor.numel(), tensor.dtype, given=given, output=output, op=op, root=root),
            async_op,
        )

    def all_gather(self, output: torch.Tensor, tensor: torch.Tensor, async_op: bool = False) -> Work:
        """Gather every rank's *tensor*, all of one size, into *output*, in the order of ranks.

        Raises:
            ValueError: *output* is not ``world_size`` times as long, or of another dtype.
        """
        check_parts(output, tensor, self.world_size)
        return self._start(
            Request("all_gather", output.numel(), output.dtype, given=tensor, output=output), async_op
        )

    def reduce_scatter(
        self, output: torch.Tensor, tensor: torch.Tensor, op: ReduceOp = "sum", async_op: bool = False
    ) -> Work:
        """Reduce *tensor*, of ``world_size`` equal parts; each rank's *output* is its own part.

        Raises:
            NotSupportedError: as `all_reduce`.
            ValueError: *tensor* is not ``world_size`` times as long, or of another dtype.
        """
        check_reduction(tensor, op)
        check_parts(tensor, output, self.world_size)
        return self._start(
            Request("reduce_scatter", tensor.numel(), tensor.dtype, given=tensor, output=output, op=op),
            async_op,
        )

    def gather(
        self, output: torch.Tensor | None, tensor: torch.Tensor, root: int = 0, async_op: bool = False
    ) -> Work:
        """Gather every rank's *tensor*, all of one size, into *output* on *root*.

        Raises:
            ValueError: *root* is no rank, or gives no *output*, or one that is not as long as needed.
        """
        check_root(root, self.world_size)
        if self.rank != root:
            output = None
        elif output is None:
            raise ValueError(f"rank {root} is the root of this gather and must give an output")
        else:
            check_parts(output, tensor, self.world_size)

        count = tensor.numel() * self.world_size
        return self._start(
            Request("gather", count, tensor.dtype, given=tensor, output=output, root=root), async_op
        )

    def scatter(
        self, output: torch.Tensor, tensor: torch.Tensor | None, root: int = 0, async_op: bool = False
    ) -> Work:
        """Give each rank its part of *root*'s *tensor*, of ``world_size`` equal parts, as *output*.

        Raises:
            ValueError: *root* is no rank, or gives no *tensor*, or one that is not as long as needed.
        """
        check_root(root, self.world_size)
        if self.rank != root:
            tensor = None
        elif tensor is None:
            raise ValueError(f"rank {root} is the root of this scatter and must give a tensor")
        else:
            check_parts(tensor, output, self.world_size)

        count = output.numel() * self.world_size
        return self._start(
            Request("scatter", count, output.dtype, given=tensor, output=output, root=root), async_op
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

        Parts are equal, or of the sizes along the first dimension that are given, which all ranks then
        give.

        Raises:
            ValueError: tensors or sizes do not fit each other on this rank.
            MismatchError: this rank and another disagree about the size of a part.
        """
        count, splits = tensor.numel(), None
        if output_splits is None and input_splits is None:
            check_equal_parts(output, tensor, self.world_size)
        else:
            into, out_of = check_splits(
                output, tensor, output_splits, input_splits, self.rank, self.world_size
            )
            count = tensor.shape[1:].numel()
            splits = [rows * count for rows in into], [rows * count for rows in out_of]
        return self._start(
            Request("all_to_all", count, tensor.dtype, given=tensor, output=output, splits=splits), async_op
        )

    def send(self, tensor: torch.Tensor, peer: int, tag: int = 0, async_op: bool = False) -> Work:
        """Send *tensor* to rank *peer*; complete when it has been received.

        Raises:
            ValueError: *peer* is no other rank.
        """
        check_peer(peer, self.rank, self.world_size)
        lane = self.rank, peer, tag
        return self._start(
            Request("message", tensor.numel(), tensor.dtype, given=tensor, lane=lane), async_op
        )

    def recv(self, tensor: torch.Tensor, peer: int, tag: int = 0, async_op: bool = False) -> Work:
        """Replace *tensor* by what rank *peer* sends under *tag*, of one size and dtype.

        Raises:
            ValueError: *peer* is no other rank.
        """
        check_peer(peer, self.rank, self.world_size)
        work: Work
        with self._turn:
            if self._any_source is not None and self._any_source.has_claim(peer, tag):
                work = self._any_source.start(tensor, (peer,), tag)
            else:
                work = self._receive(tensor, peer, tag)
        return _waited(work, async_op)

    def recv_any(self, tensor: torch.Tensor, tag: int = 0, async_op: bool = False) -> ReceiveWork:
        """Replace *tensor* by what comes first under *tag*, of its size and dtype, from any other rank.

        Raises:
            NotSupportedError: the ranks cannot wait for one of several messages.
        """
        with self._turn:
            work = self._any().start(tensor, self._others(), tag)
        return _waited(work, async_op)

    def barrier(self, async_op: bool = False) -> Work:
        """Complete when every rank has called."""
        return self._start(Request("barrier", 1, torch.uint8, op="sum"), async_op)

    def poll(self) -> None:
        """Advance what is in flight as far as it goes without waiting."""
        self.launcher.poll()

    def zeros(self, count: int, dtype: torch.dtype, device: torch.device | str = "cpu") -> torch.Tensor:
        """Return a flat tensor of *count* zeros which is read without a copy where ranks share memory.

        Elsewhere, or where there is not as much of that memory, it is like any other.
        """
        memory: Memory | None = getattr(self.launcher, "memory", None)
        own = memory(count * dtype.itemsize) if memory and count and str(device) == "cpu" else None
        return torch.zeros(count, dtype=dtype, device=device) if own is None else own.view(dtype).zero_()

    def _any(self) -> AnySource:
        """Return what receives from any source, once this rank has done so."""
        if self._any_source is None:
            wait_any: WaitAny | None = getattr(self.launcher, "wait_any", None)
            if wait_any is None:
                raise NotSupportedError(
                    "on a GPU a rank receives only from one that it names, as with NCCL; give recv its src"
                )
            first_source: FirstSource = getattr(self.launcher, "first_source", min)
            self._any_source = AnySource(self._receive, wait_any, self.poll, first_source, self._turn)
        return self._any_source

    def _others(self) -> tuple[int, ...]:
        return tuple(peer for peer in range(self.world_size) if peer != self.rank)

    def _receive(self, tensor: torch.Tensor, peer: int, tag: int) -> Work:
        """Start receiving the next message of *peer* under *tag*."""
        lane = peer, self.rank, tag
        return self._start(
            Request("message", tensor.numel(), tensor.dtype, output=tensor, lane=lane), async_op=True
        )

    def _start(self, request: Request, async_op: bool) -> Work:
        """Number *request* in its lane, and have it carried out; they start in the order of their numbers."""
        with self._turn:
            request.sequence = self._num_calls[request.lane]
            self._num_calls[request.lane] += 1
            work = self.launcher.launch(request)
        return _waited(work, async_op)


@hidden_from_modes
def _waited(work: SomeWork, async_op: bool) -> SomeWork:
    if not async_op:
        work.wait()
    return work
