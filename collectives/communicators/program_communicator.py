"""Collectives and messages on tensors, carried out by our programs over a transport."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any

import torch

from collectives.algorithms.tree import tree
from collectives.catalogue.selectors import Choice, Selector, fixed
from collectives.communicators.all_to_all_v import exchange_parts
from collectives.communicators.dispatch_modes import opaque_calls
from collectives.communicators.point_to_point import check_peer, message
from collectives.communicators.reduction import REDUCE, ReduceOp, check_reduction
from collectives.communicators.tensors import (
    apart_from,
    check_exchange,
    check_root,
    check_splits,
    rows_of,
    write_back,
)
from collectives.errors import NotSupportedError
from collectives.execution.call import Call, Lane
from collectives.execution.clock import Clock
from collectives.execution.execute import execute
from collectives.execution.transport import Transport
from collectives.execution.work import Work
from collectives.program import Algorithm
from collectives.program.chunking import Buffer, Chunking


@opaque_calls
class ProgramCommunicator:
    """A `collectives.communicators.communicator.Communicator` over *transport*.

    Results are in place when the `Work` has been waited for, and nothing is handed out half-reduced.

    Args:
        transport: moves the messages.
        algorithm: which algorithm carries out a call; see `collectives.catalogue.selectors`.
        device: on which a barrier's token lives.
        carry_out: what runs the program of a collective; as `collectives.execution.execute.execute`.
    """

    def __init__(
        self,
        transport: Transport,
        algorithm: Choice | Selector = "ring",
        device: torch.device | str = "cpu",
        carry_out: Callable[[Algorithm, Buffer, Transport, int], Generator[Any, Any, None]] = execute,
    ) -> None:
        self.transport = transport
        self._carry_out = carry_out
        self.device = torch.device(device)
        self.selector = algorithm if isinstance(algorithm, Selector) else fixed(algorithm)
        self.moves_by_itself = False
        self._num_calls: Counter[Lane] = Counter()

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
        finish = self._divide if op == "avg" else None
        return self._start("all_reduce", tensor, async_op, op=op, finish=finish)

    def broadcast(self, tensor: torch.Tensor, root: int = 0, async_op: bool = False) -> Work:
        """Replace *tensor* by that of rank *root*."""
        return self._start("broadcast", tensor, async_op, root=root)

    def reduce(
        self, tensor: torch.Tensor, root: int = 0, op: ReduceOp = "sum", async_op: bool = False
    ) -> Work:
        """Reduce *tensor* over all ranks, in place on *root*; elsewhere it stays as it is."""
        check_reduction(tensor, op)
        mine = self.rank == root
        work_on = tensor if mine else tensor.detach().clone()
        finish = self._divide if op == "avg" and mine else None
        return self._start("reduce", work_on, async_op, op=op, root=root, finish=finish)

    def all_gather(self, output: torch.Tensor, tensor: torch.Tensor, async_op: bool = False) -> Work:
        """Gather every rank's *tensor*, all of one size, into *output*, in the order of ranks."""
        rows = rows_of(output, tensor, self.world_size)
        rows[self.rank].copy_(tensor.detach().reshape(-1))
        finish = partial(write_back, output)
        return self._start("all_gather", rows, async_op, finish=finish)

    def reduce_scatter(
        self, output: torch.Tensor, tensor: torch.Tensor, op: ReduceOp = "sum", async_op: bool = False
    ) -> Work:
        """Reduce *tensor*, of ``world_size`` equal parts; each rank's *output* is its own part."""
        check_reduction(tensor, op)
        work_on = apart_from(tensor, rows_of(tensor, output, self.world_size))

        def finish(flat: torch.Tensor) -> None:
            self._take_own_part(output, flat)
            if op == "avg":
                output.detach().div_(self.world_size)

        return self._start("reduce_scatter", work_on, async_op, op=op, finish=finish)

    def gather(
        self, output: torch.Tensor | None, tensor: torch.Tensor, root: int = 0, async_op: bool = False
    ) -> Work:
        """Gather every rank's *tensor*, all of one size, into *output* on *root*."""
        if self.rank != root:
            output = tensor.new_empty(self.world_size, tensor.numel())
        elif output is None:
            raise ValueError(f"rank {root} is the root of this gather and must give an output")
        rows = rows_of(output, tensor, self.world_size)
        rows[self.rank].copy_(tensor.detach().reshape(-1))
        finish = partial(write_back, output)
        return self._start("gather", rows, async_op, root=root, finish=finish)

    def scatter(
        self, output: torch.Tensor, tensor: torch.Tensor | None, root: int = 0, async_op: bool = False
    ) -> Work:
        """Give each rank its part of *root*'s *tensor*, of ``world_size`` equal parts, as *output*."""
        if self.rank != root:
            work_on = output.detach().new_empty(self.world_size, output.numel())
        elif tensor is None:
            raise ValueError(f"rank {root} is the root of this scatter and must give a tensor")
        else:
            work_on = apart_from(tensor, rows_of(tensor, output, self.world_size))
        finish = partial(self._take_own_part, output)
        return self._start("scatter", work_on, async_op, root=root, finish=finish)

    def all_to_all(
        self,
        output: torch.Tensor,
        tensor: torch.Tensor,
        output_splits: Sequence[int] | None = None,
        input_splits: Sequence[int] | None = None,
        async_op: bool = False,
    ) -> Work:
        """Exchange parts: part q of *tensor* goes to rank q, where it becomes part r of *output*.

        With sizes of parts, which all ranks then give, the exchange is direct, whatever the algorithm.

        Raises:
            ValueError: tensors or sizes do not fit each other on this rank.
            MismatchError: this rank and another disagree about the size of a part.
        """
        if output_splits is not None or input_splits is not None:
            return self._exchange(output, tensor, output_splits, input_splits, async_op)
        check_exchange(output, tensor, self.world_size)
        flat = output.detach().contiguous().view(-1)
        flat.copy_(apart_from(output, tensor))
        finish = partial(write_back, output)
        return self._start("all_to_all", flat, async_op, finish=finish)

    def send(self, tensor: torch.Tensor, peer: int, tag: int = 0, async_op: bool = False) -> Work:
        """Send *tensor* to rank *peer*; complete when it has been received.

        Raises:
            ValueError: *peer* is no other rank.
        """
        check_peer(peer, self.rank, self.world_size)
        return self._message(tensor, self.rank, peer, tag, async_op)

    def recv(self, tensor: torch.Tensor, peer: int, tag: int = 0, async_op: bool = False) -> Work:
        """Replace *tensor* by what rank *peer* sends under *tag*, of one size and dtype.

        Raises:
            ValueError: *peer* is no other rank.
        """
        check_peer(peer, self.rank, self.world_size)
        return self._message(tensor, peer, self.rank, tag, async_op)

    def barrier(self) -> None:
        """Return when every rank has called."""
        token = torch.zeros(1, dtype=torch.uint8, device=self.device)
        self._start("barrier", token, async_op=False, op="sum", algorithm=tree)

    def poll(self) -> None:
        """Advance what is in flight as far as it goes without waiting."""
        self.transport.poll()

    def _exchange(
        self,
        output: torch.Tensor,
        tensor: torch.Tensor,
        output_splits: Sequence[int] | None,
        input_splits: Sequence[int] | None,
        async_op: bool,
    ) -> Work:
        into, out_of = check_splits(output, tensor, output_splits, input_splits, self.rank, self.world_size)
        row = tensor.shape[1:].numel()
        call = self._call("all_to_all", "direct", tensor.new_empty(row), op="by parts")

        def run() -> Generator[Any, Any, None]:
            flat = output.detach().contiguous().view(-1)
            sizes = [split * row for split in into], [split * row for split in out_of]
            yield from exchange_parts(flat, apart_from(output, tensor), *sizes, self.transport, call)
            write_back(output, flat)

        return self._launch(run(), call, async_op)

    def _message(self, tensor: torch.Tensor, source: int, destination: int, tag: int, async_op: bool) -> Work:
        call = self._call("message", "message", tensor, lane=(source, destination, tag))
        return self._launch(self._carry(message(source, destination), tensor.detach(), call), call, async_op)

    def _carry(self, algorithm: Algorithm, tensor: torch.Tensor, call: Call) -> Generator[Any, Any, None]:
        """Execute the program of a message; where it is received, write back what was copied."""
        flat = tensor.contiguous().view(-1)
        buffer = Buffer(Chunking(flat.numel(), 1, flat.element_size()), flat)
        yield from execute(algorithm, buffer, self.transport, call.channel())
        assert call.lane is not None
        if call.lane[1] == self.rank:
            write_back(tensor, flat)

    def _select(self, collective: str, nbytes: int, root: int | None) -> Algorithm:
        if root is not None:
            check_root(root, self.world_size)
        algorithm = self.selector.select(collective, nbytes)
        if algorithm is None:
            raise NotSupportedError(f"there is no native {collective} under our own programs")
        return algorithm if root is None else algorithm.with_parameters(root=root)

    def _divide(self, flat: torch.Tensor) -> None:
        flat.div_(self.world_size)

    def _take_own_part(self, output: torch.Tensor, flat: torch.Tensor) -> None:
        output.detach().copy_(flat.view(self.world_size, -1)[self.rank].view(output.shape))

    def _start(
        self,
        collective: str,
        tensor: torch.Tensor,
        async_op: bool,
        *,
        op: str = "",
        root: int | None = None,
        algorithm: Algorithm | None = None,
        finish: Callable[[torch.Tensor], Any] | None = None,
    ) -> Work:
        algorithm = algorithm or self._select(collective, tensor.nbytes, root)
        call = self._call(collective, str(algorithm), tensor, op=op, root=root)
        return self._launch(self._run(algorithm, tensor.detach(), call, finish), call, async_op)

    def _call(
        self,
        collective: str,
        algorithm: str,
        tensor: torch.Tensor,
        *,
        op: str = "",
        root: int | None = None,
        lane: Lane = None,
    ) -> Call:
        """Return the next call in *lane*."""
        dtype = str(tensor.dtype).removeprefix("torch.")
        sequence = self._num_calls[lane]
        self._num_calls[lane] += 1
        return Call(sequence, collective, algorithm, tensor.numel(), dtype, op, root, lane)

    def _launch(self, execution: Generator[Any, Any, None], call: Call, async_op: bool) -> Work:
        work = self.transport.start(execution, call)
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
        reduce = REDUCE[call.op or "sum"]
        buffer = Buffer.for_program(algorithm, self.world_size, flat, flat.element_size(), reduce)
        yield from self._carry_out(algorithm, buffer, self.transport, call.channel())
        if finish is not None:
            finish(flat)
        write_back(tensor, flat)
