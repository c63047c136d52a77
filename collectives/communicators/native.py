"""The vendor's own collectives, behind the same interface: the baseline.

What NCCL, Gloo, or any other backend of ``torch.distributed`` does with a call is its own
affair; on a group of the ``testbed`` backend it is that group's algorithm.  So is what it does
when ranks make different calls: our fingerprints do not reach its messages.  Gloo then ends the
process (sizes), or hands out a wrong result (reductions, roots), unless a check is asked for; see
`collectives.communicators.connection.connect`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from collectives.communicators.point_to_point import check_peer
from collectives.communicators.reduction import TORCH_OP, ReduceOp, check_reduction
from collectives.communicators.tensors import (
    apart_from,
    check_exchange,
    check_root,
    check_splits,
    rows_of,
    write_back,
)
from collectives.errors import CollectiveError, NotSupportedError
from collectives.execution.call import Call, Lane, RecentCalls, Report, raise_again
from collectives.execution.clock import RealClock
from collectives.transports.store_reports import StoreReports, grace
from collectives.transports.watchdog import Watch

VENDOR_DTYPES = frozenset(
    {
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.int8,
        torch.uint8,
    }
)
"""What both Gloo and NCCL take in every collective (torch 2.13, ProcessGroupGloo.cpp and NCCLUtils.cpp)."""


class NativeCommunicator:
    """A `collectives.communicators.communicator.Communicator` that hands every call to *group* as it is.

    Args:
        group: the process group.
        timeout: seconds within which a wait ends unless told otherwise; None leaves it to the group.
        reports: turn a failure into the error that is raised.
        check: called before each collective is handed on, to return when all ranks have made the same call.
    """

    def __init__(
        self,
        group: dist.ProcessGroup,
        timeout: float | None,
        reports: StoreReports,
        check: Callable[[Call], None] | None = None,
    ) -> None:
        self.group = group
        self.rank = group.rank()
        self.world_size = group.size()
        self.clock = RealClock()
        self.moves_by_itself = type(group) is dist.ProcessGroup  # one written in Python moves when asked
        self.timeout = timeout
        self.reports = reports
        self.watch = Watch(reports.any_failed, reports.break_off, grace(timeout) / 4)
        self.recent = RecentCalls()
        self.failure: CollectiveError | None = None
        self._check = check
        self._num_calls: Counter[Lane] = Counter()

    def all_reduce(self, tensor: torch.Tensor, op: ReduceOp = "sum", async_op: bool = False) -> NativeWork:
        """Replace *tensor* by its reduction over all ranks; an average is a sum, divided at the end."""
        check_reduction(tensor, op)

        def launch(flat: torch.Tensor) -> Any:
            return dist.all_reduce(flat, _vendor_op(op), self.group, async_op=True)

        finish = self._divide if op == "avg" else None
        return self._start("all_reduce", tensor, launch, async_op, op=op, finish=finish)

    def broadcast(self, tensor: torch.Tensor, root: int = 0, async_op: bool = False) -> NativeWork:
        """Replace *tensor* by that of rank *root*."""
        check_root(root, self.world_size)

        def launch(flat: torch.Tensor) -> Any:
            return dist.broadcast(flat, group_src=root, group=self.group, async_op=True)

        return self._start("broadcast", tensor, launch, async_op, root=root)

    def reduce(
        self, tensor: torch.Tensor, root: int = 0, op: ReduceOp = "sum", async_op: bool = False
    ) -> NativeWork:
        """Reduce *tensor* over all ranks, in place on *root*; elsewhere it stays as it is."""
        check_reduction(tensor, op)
        check_root(root, self.world_size)
        mine = self.rank == root
        work_on = tensor if mine else tensor.detach().clone()

        def launch(flat: torch.Tensor) -> Any:
            return dist.reduce(flat, op=_vendor_op(op), group=self.group, group_dst=root, async_op=True)

        finish = self._divide if op == "avg" and mine else None
        return self._start("reduce", work_on, launch, async_op, op=op, root=root, finish=finish)

    def all_gather(self, output: torch.Tensor, tensor: torch.Tensor, async_op: bool = False) -> NativeWork:
        """Gather every rank's *tensor* into *output*, in the order of ranks."""
        rows_of(output, tensor, self.world_size)
        part = apart_from(output, tensor)

        def launch(flat: torch.Tensor) -> Any:
            return dist.all_gather(self._parts(flat), part, self.group, async_op=True)

        return self._start("all_gather", output, launch, async_op)

    def reduce_scatter(
        self, output: torch.Tensor, tensor: torch.Tensor, op: ReduceOp = "sum", async_op: bool = False
    ) -> NativeWork:
        """Reduce *tensor*, of ``world_size`` equal parts; each rank's *output* is its own part."""
        check_reduction(tensor, op)
        parts = self._parts(apart_from(output, rows_of(tensor, output, self.world_size)))

        def launch(flat: torch.Tensor) -> Any:
            return dist.reduce_scatter(flat, parts, op=_vendor_op(op), group=self.group, async_op=True)

        finish = self._divide if op == "avg" else None
        return self._start("reduce_scatter", output, launch, async_op, op=op, finish=finish)

    def gather(
        self, output: torch.Tensor | None, tensor: torch.Tensor, root: int = 0, async_op: bool = False
    ) -> NativeWork:
        """Gather every rank's *tensor*, all of one size, into *output* on *root*."""
        check_root(root, self.world_size)
        if self.rank != root:
            output = tensor.new_empty(self.world_size, tensor.numel())
        elif output is None:
            raise ValueError(f"rank {root} is the root of this gather and must give an output")
        rows_of(output, tensor, self.world_size)
        part = apart_from(output, tensor)

        def launch(flat: torch.Tensor) -> Any:
            into = self._parts(flat) if self.rank == root else None
            return dist.gather(part, into, group=self.group, group_dst=root, async_op=True)

        return self._start("gather", output, launch, async_op, root=root)

    def scatter(
        self, output: torch.Tensor, tensor: torch.Tensor | None, root: int = 0, async_op: bool = False
    ) -> NativeWork:
        """Give each rank its part of *root*'s *tensor*, of ``world_size`` equal parts, as *output*."""
        check_root(root, self.world_size)
        parts = None
        if self.rank == root:
            if tensor is None:
                raise ValueError(f"rank {root} is the root of this scatter and must give a tensor")
            parts = self._parts(apart_from(output, rows_of(tensor, output, self.world_size)))

        def launch(flat: torch.Tensor) -> Any:
            return dist.scatter(flat, parts, group=self.group, group_src=root, async_op=True)

        return self._start("scatter", output, launch, async_op, root=root)

    def all_to_all(
        self,
        output: torch.Tensor,
        tensor: torch.Tensor,
        output_splits: Sequence[int] | None = None,
        input_splits: Sequence[int] | None = None,
        async_op: bool = False,
    ) -> NativeWork:
        """Exchange parts: part q of *tensor* goes to rank q, where it becomes part r of *output*."""
        into: list[int] | None = None
        out_of: list[int] | None = None
        if output_splits is not None or input_splits is not None:
            row = tensor.shape[1:].numel()
            splits = check_splits(output, tensor, output_splits, input_splits, self.rank, self.world_size)
            into, out_of = ([split * row for split in side] for side in splits)
        else:
            check_exchange(output, tensor, self.world_size)
        given = apart_from(output, tensor)

        def launch(flat: torch.Tensor) -> Any:
            return dist.all_to_all_single(flat, given, into, out_of, group=self.group, async_op=True)

        return self._start("all_to_all", output, launch, async_op)

    def send(self, tensor: torch.Tensor, peer: int, tag: int = 0, async_op: bool = False) -> NativeWork:
        """Send *tensor* to rank *peer*; what completion means, the backend says."""
        check_peer(peer, self.rank, self.world_size)

        def launch(flat: torch.Tensor) -> Any:
            return dist.isend(flat, group=self.group, tag=tag, group_dst=peer)

        return self._start("message", tensor, launch, async_op, lane=(self.rank, peer, tag))

    def recv(self, tensor: torch.Tensor, peer: int, tag: int = 0, async_op: bool = False) -> NativeWork:
        """Replace *tensor* by what rank *peer* sends under *tag*, of one size and dtype."""
        check_peer(peer, self.rank, self.world_size)

        def launch(flat: torch.Tensor) -> Any:
            return dist.irecv(flat, group=self.group, tag=tag, group_src=peer)

        return self._start("message", tensor, launch, async_op, lane=(peer, self.rank, tag))

    def barrier(self) -> None:
        """Return when every rank has called."""
        token = torch.zeros(1, dtype=torch.uint8)

        def launch(flat: torch.Tensor) -> Any:
            return dist.barrier(self.group, async_op=True)

        self._start("barrier", token, launch, async_op=False)

    def poll(self) -> None:
        """Do nothing: the backend advances by itself."""

    def _parts(self, flat: torch.Tensor) -> list[torch.Tensor]:
        return list(flat.view(self.world_size, -1))

    def _divide(self, flat: torch.Tensor) -> None:
        flat.div_(self.world_size)

    def _start(
        self,
        collective: str,
        tensor: torch.Tensor,
        launch: Callable[[torch.Tensor], Any],
        async_op: bool,
        *,
        op: str = "",
        root: int | None = None,
        lane: Lane = None,
        finish: Callable[[torch.Tensor], None] | None = None,
    ) -> NativeWork:
        self.raise_failure()
        dtype = str(tensor.dtype).removeprefix("torch.")
        call = Call(self._num_calls[lane], collective, "native", tensor.numel(), dtype, op, root, lane)
        self._num_calls[lane] += 1
        self.recent.append(call)
        flat = tensor.detach().contiguous().view(-1)

        def complete() -> None:
            if finish is not None:
                finish(flat)
            sent = lane is not None and lane[0] == self.rank
            if not sent:
                write_back(tensor, flat)

        try:
            if self._check is not None and lane is None:
                self._check(call)
            work = NativeWork(self, launch(flat), call, complete)
        except (RuntimeError, CollectiveError) as error:
            raise self.fail(call, "at its launch", error, grace(self.timeout)) from error
        if not async_op:
            work.wait()
        return work

    def fail(self, call: Call, doing: str, error: Exception, seconds: float) -> CollectiveError:
        """Return the error to raise for a failure in the backend; record it, unless nothing was lost."""
        if "Invalid scalar type" in str(error):
            backend = dist.get_backend(self.group)
            return NotSupportedError(
                f"{backend} has no {call.collective} of {call.dtype}; use algorithm='ring'"
            )
        if isinstance(error, CollectiveError):
            self.failure = error
        else:
            report = Report(call, doing, tuple(self.recent))
            self.failure = self.reports.explain(report, error, seconds)
        return self.failure

    def raise_failure(self) -> None:
        """Raise if an earlier collective of this communicator has failed."""
        raise_again(self.failure)


class NativeWork:
    """A collective in flight in the vendor's library; a `collectives.execution.work.Work`."""

    def __init__(
        self, communicator: NativeCommunicator, work: Any, call: Call, complete: Callable[[], None]
    ) -> None:
        self.communicator = communicator
        self.work = work
        self.call = call
        self.complete = complete
        self.completed_ps: int | None = None

    def wait(self, timeout: float | None = None) -> None:
        """Return when the result is in place (on a GPU: make the current stream wait for it)."""
        if self.completed_ps is not None:
            return
        self.communicator.raise_failure()
        limit = self.communicator.timeout if timeout is None else timeout
        kept = grace(limit)
        try:
            with self.communicator.watch:
                self.work.wait(*([timedelta(seconds=limit - kept)] if limit is not None else []))
        except RuntimeError as error:
            raise self.communicator.fail(self.call, "inside the backend", error, kept) from error
        self.complete()
        self.completed_ps = self.communicator.clock.now_ps()

    def is_completed(self) -> bool:
        """Return whether the result is in place."""
        self.communicator.raise_failure()
        if self.completed_ps is None and self.work.is_completed():
            self.wait()
        return self.completed_ps is not None


def _vendor_op(op: str) -> Any:
    """Return torch's operation; Gloo has no average, so that is a sum, divided at the end."""
    return TORCH_OP["sum" if op == "avg" else op]
