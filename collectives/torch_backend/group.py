"""Our collectives as the ``torch.distributed`` backend ``testbed``.

    torch.distributed.init_process_group("testbed")

A process group translates torch's calls, lists of tensors and option objects, into calls of a
`collectives.communicators.communicator.Communicator`, and knows nothing of how messages travel.  That is the
business of its *members* (`collectives.torch_backend.members`): processes over an inner Gloo or NCCL group,
or rank threads in virtual time.  A script runs unmodified on either, and so does what torch builds
on a process group: object collectives, sub-groups, its own DistributedDataParallel.

In torch 2.13 only a subclass of ``ProcessGroup`` can be written in Python, not a ``Backend``; it
then takes the place of the process group.  Torch calls it under old and new names of its methods.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from threading import get_ident
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch.distributed.constants import default_pg_timeout

from collectives.catalogue.selectors import Choice
from collectives.communicators.communicator import Communicator
from collectives.communicators.dispatch_modes import calls_hidden_from_modes
from collectives.communicators.reduction import ReduceOp, factor_of, op_of
from collectives.errors import NotSupportedError
from collectives.execution.work import OnStream, Waitable, Work
from collectives.torch_backend import uneven
from collectives.torch_backend.backend_rules import MESSAGE, PREMUL_SUM
from collectives.torch_backend.door import OpenDoor
from collectives.torch_backend.members import GroupMembers
from collectives.torch_backend.monitored_barrier import MonitoredBarrier
from collectives.torch_backend.names import NamedProcessGroup
from collectives.torch_backend.own_messages import OwnMessages
from collectives.torch_backend.rows import (
    Pair,
    check_alike,
    check_number,
    copy_rows,
    joined,
    sizes_of,
    written_anywhere,
)
from collectives.torch_backend.sparse import sparse_all_reduce
from collectives.torch_backend.uncompiled import uncompiled
from collectives.torch_backend.work import CollectiveWork, MessageOverGloo, timeout_of
from collectives.transports.turn import HomeProcess


@uncompiled
@calls_hidden_from_modes
class TestbedProcessGroup(NamedProcessGroup):
    """A process group whose collectives are ours."""

    __test__: ClassVar[bool] = False

    def __init__(self, members: GroupMembers, rank: int, world_size: int) -> None:
        super().__init__(rank, world_size)
        self.members = members
        self.home = HomeProcess()
        members.belong_to(self)
        self._communicators: dict[str, Communicator] = {}
        self._monitored_barrier: MonitoredBarrier | None = None
        self._own_messages = OwnMessages(rank)
        self._is_aborted = False
        self._connecting = threading.Lock()
        self._coalesced: dict[int, list[CollectiveWork]] = {}  # by thread

    def connect(
        self,
        algorithm: Choice | None = None,
        timeout: float | None = None,
        device: torch.device | str = "cpu",
        transport: str | None = None,
    ) -> Communicator:
        """Return a new communicator between the members of this group, with its own queue.

        Every rank makes the same calls in the same order.
        """
        self.home.check()
        return self.members.connect(algorithm, torch.device(device), timeout, transport)

    def communicator(self, device: torch.device) -> Communicator:
        """Return the communicator that carries this group's own collectives; every call begins with it.

        Raises:
            DistBackendError: the group was aborted.
            NotSupportedError: this is a child that was forked from the rank's process.
        """
        self.home.check()
        if self._is_aborted:
            raise dist.DistBackendError(
                f"rank {self.rank()}: its process group was aborted on this rank; make a new one"
            )
        found = self._communicators.get(device.type)
        if found is None:
            with self._connecting:
                found = self._communicators.get(device.type)
                if found is None:
                    found = self._communicators[device.type] = self.connect(device=device)
        return found

    def shutdown(self) -> None:
        """Give back what connects the members."""
        self._communicators.clear()
        self.members.shutdown()

    def abort(self) -> None:
        """Give back what connects the members, and let no call of this group succeed any more."""
        self._is_aborted = True
        self.shutdown()

    # Collectives.

    def allreduce(self, tensors: Any, opts: Any = dist.ReduceOp.SUM) -> CollectiveWork:  # type: ignore[override]
        """Reduce one tensor over all ranks, in place; if it is sparse, before this returns."""
        (tensor,) = _as_list(tensors)
        if tensor.layout != torch.strided:
            plain = self._given(tensor)
            sparse_all_reduce(self, plain, getattr(opts, "reduceOp", opts))
            return self._work([], [(tensor, plain)])
        return self.allreduce_coalesced([tensor], opts)

    def allreduce_coalesced(self, tensors: Any, opts: Any = dist.ReduceOp.SUM) -> CollectiveWork:
        """Reduce several tensors over all ranks, in place, one after another."""
        op, factor = self._op_and_factor(opts)
        self._check("all_reduce", _as_list(tensors), self._name_of(opts))
        reduced = [(tensor, self._given(tensor)) for tensor in _as_list(tensors)]
        for _, plain in reduced if factor is not None else ():
            plain.mul_(factor)
        works = [
            self.communicator(tensor.device).all_reduce(plain, op, async_op=True) for tensor, plain in reduced
        ]
        return self._work(works, reduced)

    def broadcast(self, tensors: Any, opts: Any = 0) -> CollectiveWork:  # type: ignore[override]
        """Replace one tensor by that of the root."""
        (tensor,) = _as_list(tensors)
        root = opts if isinstance(opts, int) else opts.rootRank
        self._check("broadcast", [tensor])
        plain = self._given(tensor) if self.rank() == root else self._wanted(tensor)
        work = self.communicator(tensor.device).broadcast(plain, root, async_op=True)
        return self._work([work], [(tensor, plain)])

    def reduce(self, tensors: Any, opts: Any) -> CollectiveWork:  # type: ignore[override]
        """Reduce one tensor over all ranks, in place on the root."""
        (tensor,) = _as_list(tensors)
        self._check("reduce", [tensor], op_of(opts.reduceOp))
        plain, communicator = self._given(tensor), self.communicator(tensor.device)
        work = communicator.reduce(plain, opts.rootRank, op_of(opts.reduceOp), async_op=True)
        return self._work([work], [(tensor, plain)])

    def allgather(self, outputs: Any, inputs: Any, opts: Any = None) -> CollectiveWork:
        """Gather one tensor of each rank into as many tensors.

        The result, in a future, is one tensor with a row for each rank; torch's quantization hooks
        want it so, as NCCL gives it; of tensors of several sizes it is they themselves.
        """
        (tensor,) = _as_list(inputs)
        (parts,) = outputs if isinstance(outputs[0], (list, tuple)) else (outputs,)
        check_number(parts, self.size())
        self._check("all_gather", [tensor, *parts])
        return self.gather_parts(parts, tensor)

    def gather_parts(self, parts: Sequence[torch.Tensor], tensor: torch.Tensor) -> CollectiveWork:
        """Gather *tensor* of each rank into *parts*, of whatever size, whichever backend the script named."""
        if uneven.are_alike(parts):
            return self._gather(tensor, parts)
        check_alike(self.rank(), tensor, [parts[self.rank()]])
        plains = [self._wanted(part) for part in parts]
        works = uneven.all_gather(self.communicator(tensor.device), plains, self._given(tensor))
        return self._work(works, list(zip(parts, plains, strict=True)))

    def gather(self, outputs: Any, inputs: Any, opts: Any) -> CollectiveWork:  # type: ignore[override]
        """Gather one tensor of each rank, all of one size, into as many tensors on the root."""
        (tensor,) = _as_list(inputs)
        parts = outputs[0] if self.rank() == opts.rootRank else ()
        if self.rank() == opts.rootRank:
            check_number(parts, self.size())
        self._check("gather", [tensor, *parts])
        plain, rows = self._given(tensor), [(part, self._wanted(part)) for part in parts]
        check_alike(self.rank(), tensor, parts)
        gathered = plain.new_empty(self.size(), tensor.numel())
        flat = plain.data.reshape(-1)
        work = self.communicator(tensor.device).gather(gathered, flat, opts.rootRank, async_op=True)
        return self._work([work], rows, lambda: copy_rows(rows, gathered))

    def scatter(self, outputs: Any, inputs: Any, opts: Any) -> CollectiveWork:  # type: ignore[override]
        """Give each rank one of the root's tensors, all of one size."""
        (output,) = _as_list(outputs)
        self._check("scatter", [output, *(inputs[0] if self.rank() == opts.rootRank else ())])
        plain, given = self._wanted(output), None
        if self.rank() == opts.rootRank:
            check_number(inputs[0], self.size())
            given = self._together(output, inputs[0])
        work = self.communicator(output.device).scatter(plain, given, opts.rootRank, async_op=True)
        return self._work([work], [(output, plain)])

    def reduce_scatter(self, outputs: Any, inputs: Any, opts: Any) -> CollectiveWork:  # type: ignore[override]
        """Reduce a list of tensors, one for each rank; each rank gets its own."""
        (output,) = _as_list(outputs)
        (parts,) = inputs if isinstance(inputs[0], (list, tuple)) else (inputs,)
        check_number(parts, self.size())
        self._check("reduce_scatter", [output, *parts], self._name_of(opts))
        if uneven.are_alike(parts):
            return self._reduce_scatter(output, self._together(output, parts), opts)
        check_alike(self.rank(), output, [parts[self.rank()]])
        plains = [joined([self._given(part)]) for part in parts]
        op = op_of(getattr(opts, "reduceOp", opts))
        works = uneven.reduce_scatter(self.communicator(output.device), plains, op)
        rows = [(output, self._wanted(output))]
        return self._work(works, rows, lambda: copy_rows(rows, [plains[self.rank()]]))

    def reduce_scatter_single(self, output: torch.Tensor, tensor: torch.Tensor, opts: Any) -> CollectiveWork:
        """Reduce one long tensor, of a part for each rank; each rank gets its own."""
        self._check("reduce_scatter_single", [output, tensor], self._name_of(opts))
        return self._reduce_scatter(output, self._given(tensor), opts)

    _reduce_scatter_base = reduce_scatter_single  # type: ignore[assignment]

    def all_to_all_single(
        self,
        output: torch.Tensor,
        tensor: torch.Tensor,
        output_split_sizes: Sequence[int] = (),
        input_split_sizes: Sequence[int] = (),
        opts: Any = None,
    ) -> CollectiveWork:
        """Exchange the parts of one long tensor, which are equal if no sizes are given."""
        self._check("all_to_all_single", [output, tensor])
        splits = sizes_of(output_split_sizes), sizes_of(input_split_sizes)
        plain, given = self._wanted(output), self._given(tensor)
        work = self.communicator(tensor.device).all_to_all(plain, given, *splits, async_op=True)
        return self._work([work], [(output, plain)])

    alltoall_base = all_to_all_single  # type: ignore[assignment]

    def alltoall(self, outputs: Any, inputs: Any, opts: Any = None) -> CollectiveWork:
        """Exchange tensors of any size: that at place q of the inputs goes to rank q."""
        if len(outputs) != self.size() or len(inputs) != self.size():
            raise ValueError(
                f"all_to_all needs {self.size()} tensors each way, one for each rank; got {len(outputs)} and "
                f"{len(inputs)}"
            )
        self._check("all_to_all", [*outputs, *inputs])
        sizes = [tensor.numel() for tensor in outputs], [tensor.numel() for tensor in inputs]
        given = joined([self._given(tensor) for tensor in inputs])
        parts = [(part, self._wanted(part)) for part in outputs]
        received = given.new_empty(sum(sizes[0]))
        work = self.communicator(outputs[0].device).all_to_all(received, given, *sizes, async_op=True)
        return self._work([work], parts, lambda: copy_rows(parts, received.split(sizes[0])))

    def all_gather_single(
        self, output: torch.Tensor, tensor: torch.Tensor, opts: Any = None
    ) -> CollectiveWork:
        """Gather one tensor of each rank into one long tensor."""
        self._check("all_gather_single", [output, tensor])
        plain, given = self._wanted(output), self._given(tensor)
        work = self.communicator(tensor.device).all_gather(plain, given, async_op=True)
        return self._work([work], [(output, plain)])

    _allgather_base = all_gather_single  # type: ignore[assignment]

    def barrier(self, opts: Any = None) -> CollectiveWork:
        """Complete when every rank has called; return only then, unless *opts* say ``asyncOp``."""
        device = getattr(opts, "device", None) or torch.device("cpu")
        work = CollectiveWork([self.communicator(device).barrier(async_op=True)])
        if not getattr(opts, "asyncOp", False):
            work.wait(timeout_of(opts))
        return self._in_group(work)

    # Point-to-point messages.

    def send(self, tensors: Any, peer: int, tag: int = 0) -> CollectiveWork:
        """Send one tensor to rank *peer* of the group."""
        (tensor,) = _as_list(tensors)
        self._check(MESSAGE, [tensor])
        plain, communicator = self._given(tensor), self.communicator(tensor.device)
        work: Work
        if peer == self.rank():
            work = self._own_messages.send(plain, tag, communicator.clock)
        else:
            work = communicator.send(plain, peer, tag, async_op=True)
        return self._in_group(self._kind_of_message(tensor)([work], [tensor]))

    def recv(self, tensors: Any, peer: int, tag: int = 0) -> CollectiveWork:
        """Replace one tensor by what rank *peer* of the group sends under *tag*."""
        (tensor,) = _as_list(tensors)
        self._check(MESSAGE, [tensor])
        plain, communicator = self._wanted(tensor), self.communicator(tensor.device)
        work: Work
        if peer == self.rank():
            work = self._own_messages.recv(plain, tag, communicator.clock)
        else:
            work = communicator.recv(plain, peer, tag, async_op=True)
        return self._work([work], [(tensor, plain)], kind=self._kind_of_message(tensor))

    def recv_anysource(self, tensors: Any, tag: int = 0) -> CollectiveWork:
        """Replace one tensor by what comes first under *tag* from any other rank.

        Raises:
            NotSupportedError: on a GPU, or where a rank computes on one that is modelled.
        """
        (tensor,) = _as_list(tensors)
        self._check(MESSAGE, [tensor])
        plain = self._wanted(tensor)
        work = self.communicator(tensor.device).recv_any(plain, tag, async_op=True)
        return self._work([work], [(tensor, plain)], kind=self._kind_of_message(tensor))

    def monitored_barrier(self, timeout: timedelta | None = None, wait_all_ranks: bool = False) -> None:
        """Return when every rank has called.

        Raises:
            CollectiveTimeoutError: one did not within *timeout*; see
                `collectives.torch_backend.monitored_barrier`.
            NotSupportedError: the script has named NCCL, which has none.
        """
        if self.members.stands_for(self.backend_asked_for, "cpu") == "nccl":
            raise NotSupportedError(
                "nccl has no monitored_barrier: call it of a group of gloo; --lenient (lenient=True) has it"
            )
        clock = self.communicator(torch.device("cpu")).clock
        with self._connecting:
            if self._monitored_barrier is None:
                store = self.members.store_to_wait_in()
                self._monitored_barrier = MonitoredBarrier(store, self.rank(), self.size(), clock)
        self._monitored_barrier.pass_(default_pg_timeout if timeout is None else timeout, wait_all_ranks)
        self.barrier()

    def _in_group(self, work: CollectiveWork) -> CollectiveWork:
        """Remember *work* for the end of several calls in one, if it is among such of this thread."""
        if self._coalesced:
            self.coalesced().append(work)
        return work

    # Several collectives in one call.

    def _start_coalescing(self, device: torch.device) -> None:
        """Remember what this thread calls from now on."""
        self._coalesced[get_ident()] = []

    def _end_coalescing(self, device: torch.device) -> CollectiveWork:
        """Return one work for all that this thread has called since `_start_coalescing`."""
        works = self.coalesced()
        self._coalesced.pop(get_ident(), None)
        return CollectiveWork.together(works)

    def coalesced(self) -> list[CollectiveWork]:
        """Return the works of what this thread has called since `_start_coalescing`."""
        return self._coalesced.get(get_ident(), [])

    def allgather_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> CollectiveWork:
        """Gather several tensors of each rank, for each rank into a list of as many tensors."""
        columns = zip(*outputs, strict=True)
        return CollectiveWork.together(
            [self.allgather([list(parts)], [tensor]) for tensor, parts in zip(inputs, columns, strict=True)]
        )

    def all_gather_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> CollectiveWork:
        """Gather several tensors of each rank, each into one long tensor."""
        pairs = zip(outputs, inputs, strict=True)
        return CollectiveWork.together([self.all_gather_single(*pair) for pair in pairs])

    allgather_into_tensor_coalesced = all_gather_single_coalesced  # type: ignore[assignment]

    def reduce_scatter_single_coalesced(self, outputs: Any, inputs: Any, opts: Any = None) -> CollectiveWork:
        """Reduce several long tensors, each of a part for each rank."""
        opts = dist.ReduceOp.SUM if opts is None else opts
        pairs = zip(outputs, inputs, strict=True)
        return CollectiveWork.together([self.reduce_scatter_single(*pair, opts) for pair in pairs])

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced  # type: ignore[assignment]

    def _gather(self, tensor: torch.Tensor, parts: Sequence[torch.Tensor]) -> CollectiveWork:
        """Gather *tensor* from all ranks into *parts*."""
        plain, rows = self._given(tensor), [(part, self._wanted(part)) for part in parts]
        check_alike(self.rank(), tensor, parts)
        gathered = plain.new_empty(self.size(), tensor.numel())
        work = self.communicator(tensor.device).all_gather(gathered, plain.data.reshape(-1), async_op=True)
        whole = gathered.view(self.size(), *tensor.shape)
        result = self.members.door.made(whole, tensor)
        return self._work([work], [(result, whole)], lambda: copy_rows(rows, gathered), rows)

    def _reduce_scatter(self, output: torch.Tensor, given: torch.Tensor, opts: Any) -> CollectiveWork:
        """Reduce *given*, which has passed the door, into *output*, which has not."""
        op, factor = self._op_and_factor(opts)
        plain = self._wanted(output)
        given = given if factor is None else given * factor
        work = self.communicator(output.device).reduce_scatter(plain, given, op, async_op=True)
        return self._work([work], [(output, plain)])

    def _check(self, collective: str, tensors: Sequence[torch.Tensor], op: str = "") -> None:
        """Check that the backend that the script has named takes this call."""
        self.members.check_call(self.backend_asked_for, collective, tensors, op)

    def _name_of(self, opts: Any) -> str:
        """Return the reduction's name in rules of backends."""
        op, factor = self._op_and_factor(opts)
        return op if factor is None else PREMUL_SUM

    def _op_and_factor(self, opts: Any) -> tuple[ReduceOp, Any]:
        """Return how to reduce, and by what each rank multiplies what it gives; None: by nothing."""
        torch_op = getattr(opts, "reduceOp", opts)
        factor = factor_of(torch_op)
        if factor is None:
            return op_of(torch_op), None
        return "sum", self._given(factor) if isinstance(factor, torch.Tensor) else factor

    def _given(self, tensor: torch.Tensor) -> torch.Tensor:
        return written_anywhere(self.members.door.given(tensor))

    def _wanted(self, tensor: torch.Tensor) -> torch.Tensor:
        return written_anywhere(self.members.door.wanted(tensor))

    def _work(
        self,
        works: Sequence[Waitable],
        result: Sequence[Pair],
        finish: Callable[[], None] = lambda: None,
        also: Sequence[Pair] = (),
        kind: type[CollectiveWork] = CollectiveWork,
    ) -> CollectiveWork:
        """Return the work of *works*, which put what stands for the tensors of *result* in place.

        Args:
            works: what has to complete.
            result: the tensors that then hold the result, each with what stands for it at the door.
            finish: puts the result in place.
            also: other tensors that it is put in.
            kind: of the work.
        """
        if isinstance(self.members.door, OpenDoor):
            return self._in_group(kind(works, [tensor for tensor, _ in result], finish))

        def finish_at_door() -> None:
            finish()
            is_known = all(work.is_known for work in works if isinstance(work, OnStream))
            for tensor, plain in (*result, *also):
                self.members.door.done(tensor, plain, is_known)

        return self._in_group(kind(works, [tensor for tensor, _ in result], finish_at_door))

    def _kind_of_message(self, tensor: torch.Tensor) -> type[CollectiveWork]:
        """Return the class of works of messages that hold *tensor*."""
        over_gloo = self.members.stands_for(self.backend_asked_for, tensor.device.type) == "gloo"
        return MessageOverGloo if over_gloo else CollectiveWork

    def _together(self, output: torch.Tensor, parts: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return *parts*, one for each rank and all like *output*, as the rows of one tensor."""
        check_alike(self.rank(), output, parts)
        return joined([self._given(part) for part in parts]).view(self.size(), -1)


def _as_list(tensors: torch.Tensor | Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
