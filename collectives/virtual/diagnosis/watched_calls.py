"""Watched calls: what ranks call of their process groups, with which tensors, from which line, and how long.

The checks of this room that look at calls are told of each when it begins, when its work is over, and which
works torch has put together into one.  A call that torch makes itself, such as those of its DDP, counts as
torch's and not as the user's.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import threading
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed

import collectives
from collectives.torch_backend.group import TestbedProcessGroup
from collectives.torch_backend.work import CollectiveWork
from collectives.virtual.computation.operations import tensors_in
from collectives.virtual.diagnosis.places import frames_from, is_users, place_above
from collectives.virtual.isolation.patching import Replacement, replaced
from sim.cluster import RankThread, current_rank_thread

_GIVEN_SECOND = (
    "allgather",
    "allgather_coalesced",
    "gather",
    "scatter",
    "reduce_scatter",
    "reduce_scatter_single",
    "_reduce_scatter_base",
    "all_to_all_single",
    "alltoall_base",
    "alltoall",
    "all_gather_single",
    "_allgather_base",
)
"""Methods of a process group whose first argument is written, and whose second is read."""
_IN_PLACE = ("allreduce", "allreduce_coalesced", "recv", "recv_anysource")
_ROOTED = ("broadcast", "reduce")

_BETWEEN = (
    f"{Path(collectives.__file__).parent}/",
    f"{Path(torch.__file__).parent}/distributed/distributed_c10d.py",
    f"{Path(torch.__file__).parent}/distributed/c10d_logger.py",
    f"{Path(torch.__file__).parent}/overrides.py",
    contextlib.__file__,
)
"""Code between whoever calls a collective and the process group."""
_AUTOGRAD = f"{Path(torch.__file__).parent}/autograd/graph.py"
_BATCH = inspect.unwrap(torch.distributed.batch_isend_irecv).__code__


@dataclass(frozen=True, eq=False)
class WatchedCall:
    """A call of a rank.

    Attributes:
        rank_thread: of the rank.
        group: whose call it is.
        method: of the group, that is called.
        given: the tensors that are read.
        wanted: those that are written.
        work: what it has returned.
        caller: the frame that calls it, of the user, of torch or of a package; a check keeps none.
        peer: of a message, the other rank of the group; None: of any source, or no message.
        is_batched: whether it goes to the backend together with others, as of `batch_isend_irecv`.
    """

    rank_thread: RankThread
    group: TestbedProcessGroup
    method: str
    given: Sequence[torch.Tensor]
    wanted: Sequence[torch.Tensor]
    work: CollectiveWork
    caller: FrameType
    peer: int | None = None
    is_batched: bool = False

    @property
    def operation(self) -> str:
        """Its name, as torch's users know it."""
        return _PLAIN_NAMES.get(self.method, self.method)

    @property
    def tensors(self) -> Sequence[torch.Tensor]:
        """Those that are read and those that are written."""
        return [*self.given, *self.wanted]

    @property
    def key(self) -> Hashable:
        """What ranks know the group by."""
        return getattr(self.group.members, "key", None)

    @property
    def hosts(self) -> Sequence[int]:
        """The ranks of the group, by their numbers among all."""
        hosts: Sequence[int] = getattr(self.group.members, "hosts", ())
        return hosts

    def device_type(self, default: str) -> str:
        """Return the kind of device whose tensors it passes; without any *default*."""
        tensors = self.tensors
        return tensors[0].device.type if tensors else default

    @cached_property
    def place(self) -> str:
        """The line of the user's code that has led to it, such as ``train.py:12``, or nothing."""
        return place_above(self.caller)

    @property
    def is_users(self) -> bool:
        """Whether the user's own code calls it."""
        return is_users(self.caller.f_code.co_filename)

    @property
    def is_of_backward(self) -> bool:
        """Whether the autograd engine calls it, as for the reducer of torch's DDP."""
        return self.caller.f_code.co_filename == _AUTOGRAD


@dataclass(frozen=True)
class CallListeners:
    """Who is told of calls of ranks, in their threads.

    Attributes:
        begins: that a rank is about to make a call of a group, and which.
        began: that it has made one.
        ended: that it has waited for the work of one, or has found it complete.
        joined: that one work stands for several from now on.
    """

    begins: Sequence[Callable[[RankThread, TestbedProcessGroup, str], None]] = ()
    began: Sequence[Callable[[WatchedCall], None]] = ()
    ended: Sequence[Callable[[RankThread, CollectiveWork], None]] = ()
    joined: Sequence[Callable[[RankThread, Sequence[CollectiveWork], CollectiveWork], None]] = ()


@contextlib.contextmanager
def calls_watched(listeners: CallListeners) -> Iterator[None]:
    """Tell *listeners* of the calls of all rank threads while the body runs."""
    inside: set[int] = set()
    replacements: list[Replacement] = []
    for name in (*_GIVEN_SECOND, *_IN_PLACE, *_ROOTED, "send", "barrier"):
        original = getattr(TestbedProcessGroup, name)
        replacements.append((TestbedProcessGroup, name, _watched(name, original, listeners, inside)))
    wait, end_coalescing = CollectiveWork.wait, TestbedProcessGroup._end_coalescing

    def watched_wait(self: CollectiveWork, timeout: Any = None) -> bool:
        try:
            return wait(self, timeout)
        finally:
            rank_thread = current_rank_thread()
            if rank_thread is not None:
                for ended in listeners.ended:
                    ended(rank_thread, self)

    def watched_end(self: TestbedProcessGroup, device: torch.device) -> CollectiveWork:
        parts = self.coalesced()
        whole = end_coalescing(self, device)
        rank_thread = current_rank_thread()
        if rank_thread is not None:
            for joined in listeners.joined:
                joined(rank_thread, parts, whole)
        return whole

    replacements += [
        (CollectiveWork, "wait", watched_wait),
        (TestbedProcessGroup, "_end_coalescing", watched_end),
    ]
    with replaced(replacements):
        yield


def _watched(
    name: str, original: Callable[..., CollectiveWork], listeners: CallListeners, inside: set[int]
) -> Callable[..., CollectiveWork]:
    """Return the method *original* of a process group, watched; *inside* has the threads that are in one."""

    def watched(group: TestbedProcessGroup, *args: Any, **kwargs: Any) -> CollectiveWork:
        rank_thread = current_rank_thread()
        thread = threading.get_ident()
        if rank_thread is None or thread in inside:
            return original(group, *args, **kwargs)
        inside.add(thread)
        for begins in listeners.begins:
            begins(rank_thread, group, _PLAIN_NAMES.get(name, name))
        try:
            work = original(group, *args, **kwargs)
        finally:
            inside.discard(thread)
        caller = _caller(sys._getframe(1))
        if caller is not None:
            given, wanted = _tensors_of(name, group, args)
            peer = args[1] if name in ("send", "recv") else None
            is_batched = bool(group.coalesced()) or _is_batched(sys._getframe(1), caller)
            call = WatchedCall(rank_thread, group, name, given, wanted, work, caller, peer, is_batched)
            for began in listeners.began:
                began(call)
        return work

    return watched


_PLAIN_NAMES = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "allgather": "all_gather",
    "allgather_coalesced": "all_gather",
    "all_gather_single": "all_gather",
    "_allgather_base": "all_gather",
    "reduce_scatter_single": "reduce_scatter",
    "_reduce_scatter_base": "reduce_scatter",
    "alltoall": "all_to_all",
    "all_to_all_single": "all_to_all",
    "alltoall_base": "all_to_all",
    "recv_anysource": "recv",
}


def _tensors_of(
    name: str, group: TestbedProcessGroup, args: Sequence[Any]
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Return the tensors that a call reads, and those that it writes."""
    if name in _GIVEN_SECOND:
        return list(tensors_in(args[1])), list(tensors_in(args[0]))
    tensors = list(tensors_in(args[0] if args else ()))
    if name in _ROOTED:
        opts = args[1] if len(args) > 1 else 0
        is_root = group.rank() == (opts if isinstance(opts, int) else getattr(opts, "rootRank", 0))
        return (tensors, []) if is_root == (name == "broadcast") else ([], tensors)
    return ([], tensors) if name in _IN_PLACE else (tensors, [])


def _is_batched(frame: FrameType | None, caller: FrameType) -> bool:
    """Return whether `batch_isend_irecv` is between *frame* and *caller*."""
    between = takewhile(lambda one: one is not caller, frames_from(frame))
    return any(one.f_code is _BATCH for one in between)


def _caller(frame: FrameType | None) -> FrameType | None:
    """Return the frame that calls a collective, outwards from *frame*."""
    return next((one for one in frames_from(frame) if not one.f_code.co_filename.startswith(_BETWEEN)), None)
