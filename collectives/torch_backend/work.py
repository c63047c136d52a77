"""A collective in flight as ``torch.distributed`` wants it: a Work, and a Future of its result.

Nothing completes by itself: there is no progress thread, and in virtual time a rank must hand
control back.  So every way of waiting leads to `CollectiveWork.wait`, in the thread of the rank:

- ``work.wait()`` from Python and from C++ comes here directly;
- ``future.wait()`` and its kin in Python come through `WorkFuture`;
- the reducer of torch's own DDP waits for futures in C++, at the end of a backward pass.  A
  future that is asked for inside a backward hook therefore queues a final callback of the
  autograd engine; those run in order, so ours completes the future before the reducer's waits.
- a future that is asked for anywhere else is completed at once, as nobody can tell whether C++ or
  Python waits for it, or for another that was made from it.

Never ``Future.set_exception``: the reducer reads the future's value without looking and the
process dies.  The error is raised where the rank waits instead.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import PythonCallbackWork
from torch._C._distributed_c10d import Work as TorchWork
from torch._subclasses.fake_tensor import is_fake

from collectives.communicators.any_source import ReceiveWork
from collectives.errors import NotSupportedError
from collectives.execution.work import OnStream, Waitable
from collectives.torch_backend.uncompiled import uncompiled

MAX_LOOKS = 1000
"""Looks in vain at a message over Gloo, after which a rank is told that it looks for nothing."""


@uncompiled
class CollectiveWork(TorchWork):
    """What a call of a `collectives.torch_backend.TestbedProcessGroup` returns.

    Args:
        works: what has to complete.
        result: the tensors that then hold the result.
        finish: puts the result in place, once, in a thread of the rank.
    """

    def __init__(
        self,
        works: Sequence[Waitable],
        result: Sequence[torch.Tensor] = (),
        finish: Callable[[], None] | None = None,
    ) -> None:
        super().__init__()
        self._works = works
        self._result = list(result)
        self._finish = finish or _nothing
        self._finished = False
        self._finishing = threading.Lock()
        self._error: Exception | None = None
        self._future: WorkFuture | None = None

    @staticmethod
    def together(parts: Sequence[CollectiveWork]) -> CollectiveWork:
        """Return one work for all of *parts*, which nobody else waits for."""

        def finish() -> None:
            for part in parts:
                part._finish()

        works = [work for part in parts for work in part._works]
        return CollectiveWork(works, [tensor for part in parts for tensor in part._result], finish)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Return when the result is in place; no *timeout*, or zero, means the group's.

        Raises:
            CollectiveError: the collective failed or timed out; what the tensors hold is undefined.
        """
        if self._error is not None:
            raise self._error
        seconds = timeout.total_seconds() if timeout else None
        if self._finished:
            for work in self._works:
                if isinstance(work, OnStream):
                    work.wait(seconds)
        else:
            try:
                for work in self._works:
                    work.wait(seconds)
                future = self._finished_future()
            except Exception as error:
                self._error = error
                raise
            if future is not None:
                future.set_result(self._result)
        return True

    def _finished_future(self) -> WorkFuture | None:
        """Put the result in place, unless another thread has; return the future that has to be told."""
        with self._finishing:
            if not self._finished:
                self._finish()
                self._finished = True
                self._finish = _nothing  # no circle may keep tensors that it refers to
            future, self._future = self._future, None
            return future

    def is_completed(self) -> bool:
        """Return whether the result is in place, after advancing what can be advanced."""
        if not self._finished and all(work.is_completed() for work in self._works):
            self.wait()
        return self._finished

    def get_future(self) -> torch.futures.Future[Any]:
        """Return a future of the list of result tensors."""
        with self._finishing:
            if self._future is not None:
                return self._future
            future = WorkFuture(self)
            is_finished = self._finished
            if not is_finished:
                self._future = future
        if is_finished:
            future.set_result(self._result)
        elif torch._C._current_autograd_node() is not None:
            torch.autograd.Variable._execution_engine.queue_callback(future.settle)
            _unsettled.futures[future] = torch._C._current_graph_task_id()
        else:
            self.wait()
        return future

    def boxed(self) -> Any:
        """Return an object of TorchScript that holds it, as torch's operators pass a work on."""
        return kept(self).boxed()

    def result(self) -> list[torch.Tensor]:
        """Return the tensors that hold the result."""
        return self._result

    def exception(self) -> Exception | None:
        """Return what went wrong, if something has."""
        return self._error

    def is_success(self) -> bool:
        """Return whether the collective has completed without error."""
        return self._finished

    def synchronize(self) -> None:
        """Return when the result is in place."""
        self.wait()

    def _source_rank(self) -> int:
        """Return the rank in the group from which a message has come, where its receiver named none."""
        sources = (work.source for work in self._works if isinstance(work, ReceiveWork))
        source = next(sources, None)
        return -1 if source is None else source


@uncompiled
class MessageOverGloo(CollectiveWork):
    """A message under the name of Gloo, which torch takes for completed only once it was waited for.

    Source: torch 2.13, ProcessGroupGloo.hpp (``SendWork``, ``RecvWork``): ``Work::isCompleted`` tells what
    ``wait`` has set.
    """

    _num_looks = 0

    def is_completed(self) -> bool:
        """Return whether somebody has waited, after advancing what can be advanced.

        Raises:
            NotSupportedError: the rank looks over and over, and would do so for ever.
        """
        if not self._finished:
            self._num_looks += 1
            if self._num_looks > MAX_LOOKS:
                raise NotSupportedError(
                    f"gloo: is_completed() of a message never turns true before wait(), and this rank has "
                    f"looked {MAX_LOOKS} times: call wait(); --lenient (lenient=True) tells when it is there"
                )
            for work in self._works:
                work.is_completed()
        return self._finished


def timeout_of(opts: Any) -> timedelta | None:
    """Return the time-out that *opts* of a collective ask for; None where they leave it to the group."""
    timeout: timedelta | None = getattr(opts, "timeout", None)
    return timeout if timeout is not None and timeout > timedelta() else None


def kept(work: TorchWork) -> TorchWork:
    """Return *work* as C++ may keep it alone to wait for it.

    Of a `CollectiveWork`, which is Python's, C++ keeps only a half for which nobody ever answers.
    """
    return PythonCallbackWork(work.wait) if isinstance(work, CollectiveWork) else work


def _nothing() -> None:
    """Do nothing: there is no result to put in place."""


class _Unsettled(threading.local):
    """The futures of this thread that the autograd engine will settle at the end of a pass: of which one."""

    def __init__(self) -> None:
        self.futures: dict[WorkFuture, int] = {}


_unsettled = _Unsettled()


def settle_all() -> None:
    """Settle what the autograd engine would; whoever calls waits for something that comes of it.

    A pass that failed has left its futures here; what their callbacks raise came out of that pass, and is no
    error of this one.
    """
    current = torch._C._current_graph_task_id()
    for future, own_pass in list(_unsettled.futures.items()):
        with contextlib.nullcontext() if own_pass == current else contextlib.suppress(Exception):
            future.settle()


@uncompiled
class WorkFuture(torch.futures.Future[Any]):
    """The result of a `CollectiveWork`, or what comes of it; whoever asks for it drives the work."""

    def __init__(self, work: CollectiveWork) -> None:
        on_cuda = {tensor.device for tensor in work._result if tensor.is_cuda and not is_fake(tensor)}
        super().__init__(devices=list(on_cuda))
        self._work = work
        self._failure: BaseException | None = None
        self._followers: list[WorkFuture] = []

    def wait(self) -> Any:
        """Return the result when it is in place.

        Raises:
            BaseException: what a callback raised of which this is the result.
        """
        self._work.wait()
        if self._failure is not None:
            raise self._failure
        return super().wait()

    def value(self) -> Any:
        """Return the result when it is in place."""
        return self.wait()

    def done(self) -> bool:
        """Return whether the result is in place, after advancing what can be advanced."""
        return self._work.is_completed()

    def then(self, callback: Callable[[torch.futures.Future[Any]], Any]) -> torch.futures.Future[Any]:
        """Return a future of ``callback(self)``, which is called when the result is in place.

        Raises:
            Exception: the result is in place, and *callback* raised.
        """
        follower = WorkFuture(self._work)
        self._followers.append(follower)
        if self._failure is not None:
            follower._fail(self._failure)
        elif super().done():
            follower.set_result(callback(self))
        else:
            self.add_done_callback(lambda _: follower._complete(callback, self))
        return follower

    def settle(self) -> None:
        """Complete this and all that follows from it.

        Raises:
            BaseException: what a callback raised; C++, which cannot see that, must not wait any more.
        """
        _unsettled.futures.pop(self, None)
        self.wait()
        for follower in self._followers:
            follower.settle()

    def _complete(self, callback: Callable[[torch.futures.Future[Any]], Any], before: WorkFuture) -> None:
        try:
            self.set_result(callback(before))
        except BaseException as error:  # the callback may have waited, and its rank been unwound
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._failure = error
        for follower in self._followers:
            follower._fail(error)
