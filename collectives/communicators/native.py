"""The vendor's own collectives, behind the same interface: the baseline.

What NCCL, Gloo, or any other backend of ``torch.distributed`` does with a call is its own
affair; on a group of the ``testbed`` backend it is that group's algorithm.  So is what it does
when ranks make different calls: our fingerprints do not reach its messages.  Gloo then ends the
process (sizes), or hands out a wrong result (reductions, roots), unless a check is asked for; see
`collectives.communicators.connection.connect`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from collectives.communicators.reduction import TORCH_OP
from collectives.communicators.requests import Request, apart_from, flat
from collectives.errors import CollectiveError, NotSupportedError
from collectives.execution.blame import Report, raise_again
from collectives.execution.call import Call, RecentCalls
from collectives.execution.clock import RealClock
from collectives.transports.store_reports import StoreReports, grace
from collectives.transports.watchdog import Watchdog

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


class NativeLauncher:
    """A `collectives.communicators.communicator.Launcher` that hands every call to *group* as it is.

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
        self.watchdog = Watchdog(reports.any_failed, reports.break_off, grace(timeout) / 4)
        self.recent = RecentCalls()
        self.failure: CollectiveError | None = None
        self.turn = threading.RLock()
        self._check = check

    def launch(self, request: Request) -> NativeWork:
        """Hand *request* to the vendor."""
        self.raise_failure()
        call = request.call("native")
        self.recent.append(call)
        output = None if request.output is None else flat(request.output)
        given = None
        if request.given is not None:
            given = flat(request.given) if output is None else apart_from(output, request.given)

        try:
            if self._check is not None and request.lane is None:
                self._check(call)
            work = self._hand_over(request, output, given)
        except (RuntimeError, CollectiveError) as error:
            raise self.fail(call, "at its launch", error, grace(self.timeout)) from error
        return NativeWork(self, work, call, partial(request.finish, output, self.world_size))

    def poll(self) -> None:
        """Do nothing: the backend advances by itself."""

    def _hand_over(self, request: Request, output: Any, given: Any) -> Any:
        """Call the vendor's collective on flat tensors, as far as this rank has them."""
        group, root, op = self.group, request.root, _vendor_op(request.op)
        match request.collective:
            case "all_reduce":
                options = dist.AllreduceOptions()
                options.reduceOp = op
                options.asyncOp = True
                return group.allreduce([output], options)
            case "broadcast":
                return dist.broadcast(output, group_src=root, group=group, async_op=True)
            case "reduce":
                work_on = given.clone() if output is None else output
                return dist.reduce(work_on, op=op, group=group, group_dst=root, async_op=True)
            case "all_gather":
                return dist.all_gather(self._parts(output), given, group, async_op=True)
            case "reduce_scatter":
                return dist.reduce_scatter(output, self._parts(given), op=op, group=group, async_op=True)
            case "gather":
                return dist.gather(given, self._parts(output), group=group, group_dst=root, async_op=True)
            case "scatter":
                return dist.scatter(output, self._parts(given), group=group, group_src=root, async_op=True)
            case "all_to_all":
                into, out_of = request.splits or (None, None)
                return dist.all_to_all_single(output, given, into, out_of, group=group, async_op=True)
            case "barrier":
                return dist.barrier(group, async_op=True)

        assert request.lane is not None
        source, destination, tag = request.lane
        if source == self.rank:
            return dist.isend(given, group=group, tag=tag, group_dst=destination)
        return dist.irecv(output, group=group, tag=tag, group_src=source)

    def _parts(self, tensor: torch.Tensor | None) -> list[torch.Tensor] | None:
        return None if tensor is None else list(tensor.view(self.world_size, -1))

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

    def __init__(self, launcher: NativeLauncher, work: Any, call: Call, complete: Callable[[], None]) -> None:
        self.launcher = launcher
        self.work = work
        self.call = call
        self.complete = complete
        self.completed_ps: int | None = None

    def wait(self, timeout: float | None = None) -> None:
        """Return when the result is in place (on a GPU: make the current stream wait for it)."""
        if self.completed_ps is not None:
            return
        self.launcher.raise_failure()
        limit = self.launcher.timeout if timeout is None else timeout
        kept = grace(limit)
        try:
            with self.launcher.watchdog:
                if limit is None:
                    self.work.wait()
                else:
                    self.work.wait(timedelta(seconds=limit - kept))
        except RuntimeError as error:
            raise self.launcher.fail(self.call, "inside the backend", error, kept) from error
        self.complete()
        self.completed_ps = self.launcher.clock.now_ps()

    def is_completed(self) -> bool:
        """Return whether the result is in place."""
        self.launcher.raise_failure()
        if self.completed_ps is None and self.work.is_completed():
            self.wait()
        return self.completed_ps is not None


def _vendor_op(op: str) -> Any:
    """Return torch's operation, if there is one; Gloo has no average: that is a sum, divided at the end."""
    return TORCH_OP.get("sum" if op == "avg" else op)
