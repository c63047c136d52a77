"""Buffers in flight: tensors that a rank reads or changes while a call of it is still under way.

From ``async_op=True``, ``isend`` or ``irecv`` until its wait, what a call writes may be neither read
nor changed, and what it reads may not be changed; nor may two calls in flight write to one place.  In
virtual time such a script goes through, with values of before or after, and so it does with real
processes, most often.

What torch's functions are given is looked at while a call of the user's own code is in flight on the
rank, and at no other time; what C++ changes, such as a backward pass, shows in the version of a tensor.
Only tensors of the CPU are followed; those of CUDA devices by `collectives.virtual.diagnosis.races`.  A view
that is taken is no reading.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._C import _len_torch_function_stack
from torch.overrides import TorchFunctionMode, _pop_mode, _push_mode

from collectives.torch_backend.work import CollectiveWork
from collectives.virtual.computation.operations import tensors_in
from collectives.virtual.diagnosis.accesses import overlap, region_of
from collectives.virtual.diagnosis.places import current_place
from collectives.virtual.diagnosis.watched_calls import WatchedCall
from collectives.virtual.notices import Findings
from sim.cluster import RankThread, current_rank_thread

_MAKE_ALIKE = frozenset(
    {"empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like"}
    | {"new_empty", "new_zeros", "new_ones", "new_full", "new_tensor", "new_empty_strided"}
)
"""Functions that look at the size and the type of a tensor, and at nothing in it."""
_LOOK = frozenset(
    {"item", "tolist", "numpy", "__array__", "__float__", "__int__", "__bool__", "__index__", "__complex__"}
    | {"__repr__", "__str__", "__format__", "__contains__", "equal", "allclose", "is_nonzero"}
)
"""Functions that return no tensor and look at what is in one."""


@dataclass(eq=False)
class _Flight:
    """A call of the user that a rank has not waited for."""

    operation: str
    place: str
    work: CollectiveWork
    buffers: list[tuple[torch.Tensor, bool]]
    versions: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.versions = self._versions()

    @property
    def is_over(self) -> bool:
        return self.work._finished

    def wrote(self) -> bool:
        """Return whether a buffer has been changed since this was last asked."""
        before, self.versions = self.versions, self._versions()
        return before != self.versions

    def _versions(self) -> list[int]:
        """Return how often buffers have been changed, which nobody counts of an inference tensor."""
        return [0 if tensor.is_inference() else tensor._version for tensor, _ in self.buffers]


class BuffersInFlight:
    """Finds what the ranks of one run do to their buffers in flight."""

    def __init__(self) -> None:
        self._flights: defaultdict[int, list[_Flight]] = defaultdict(list)
        self._modes: dict[int, _LookingMode] = {}
        self._threads: dict[int, RankThread] = {}
        self._found = Findings()

    def mistakes(self) -> Iterator[str]:
        """Yield what was found, with the ranks that did it."""
        yield from self._found.texts()
        forgotten = Findings()
        for rank, flights in self._flights.items():
            thread = self._threads[rank]
            for flight in flights if thread.has_finished and not thread.is_dead else ():
                what = _of_forgotten(flight)
                if what:
                    forgotten.add(rank, flight.place, what)
        yield from forgotten.texts()

    def began(self, call: WatchedCall) -> None:
        """Follow the buffers of *call*, if it is the user's."""
        if not call.is_users or call.work._finished:
            return
        buffers = [(tensor, True) for tensor in call.wanted if _is_followed(tensor)]
        buffers += [(tensor, False) for tensor in call.given if _is_followed(tensor)]
        if not buffers:
            return
        rank = call.rank_thread.rank
        self._threads[rank] = call.rank_thread
        place = call.place
        flights = self._live(rank)
        for other in flights:
            if any(_clash(one, two) for one in buffers for two in other.buffers):
                what = f"{call.operation} and the {other.operation} of {other.place}"
                self._found.add(rank, place, f"{what} share a buffer while both are in flight")
        flights.append(_Flight(call.operation, place, call.work, buffers))
        self._look(rank)

    def ended(self, rank_thread: RankThread, work: CollectiveWork) -> None:
        """Follow what *work* has carried no more."""
        rank = rank_thread.rank
        flights = self._flights.get(rank)
        if not flights:
            return
        for flight in flights:
            if flight.work is work and flight.wrote():
                self._found.add(rank, current_place(), _changed(flight))
        flights[:] = [flight for flight in flights if flight.work is not work]
        if not flights:
            self._look_away(rank)

    def joined(self, rank_thread: RankThread, parts: Sequence[CollectiveWork], whole: CollectiveWork) -> None:
        """Let who waits for *whole* wait for the flights of *parts*."""
        for flight in self._flights.get(rank_thread.rank, ()):
            if any(flight.work is part for part in parts):
                flight.work = whole

    def done(self, name: str, tensors: Sequence[torch.Tensor], result: Any) -> None:
        """Note that this rank has called a function of torch."""
        rank_thread = current_rank_thread()
        flights = self._live(rank_thread.rank) if rank_thread is not None else []
        for flight in flights:
            assert rank_thread is not None
            if flight.wrote():
                self._found.add(rank_thread.rank, current_place(), _changed(flight))
            elif _reads(name, tensors, result, flight):
                what = f"reads what {flight.operation} of {flight.place} has yet to put there"
                self._found.add(rank_thread.rank, current_place(), f"{what}; wait for it first")

    def _live(self, rank: int) -> list[_Flight]:
        flights = self._flights[rank]
        flights[:] = [flight for flight in flights if not flight.is_over]
        return flights

    def _look(self, rank: int) -> None:
        """See what this thread calls of torch, below whatever modes the script has put there."""
        if rank not in self._modes:
            self._modes[rank] = mode = _LookingMode(self)
            above = [_pop_mode() for _ in range(_len_torch_function_stack())]
            for one in (mode, *reversed(above)):
                _push_mode(one)

    def _look_away(self, rank: int) -> None:
        mode = self._modes.get(rank)
        if mode is None or mode.thread != threading.get_ident():
            return
        del self._modes[rank]
        stack = [_pop_mode() for _ in range(_len_torch_function_stack())]
        for one in reversed(stack):
            if one is not mode:
                _push_mode(one)


class _LookingMode(TorchFunctionMode):
    """Tells the check what a thread calls of torch."""

    def __init__(self, check: BuffersInFlight) -> None:
        super().__init__()
        self.thread = threading.get_ident()
        self._check = check

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **kwargs) if kwargs else func(*args)
        name = getattr(func, "__name__", "")
        if name not in ("__get__", "__set__"):
            self._check.done(name, list(tensors_in((args, kwargs or {}))), result)
        return result


def _is_followed(tensor: torch.Tensor) -> bool:
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.device.type == "cpu"
        and tensor.layout == torch.strided
        and tensor.numel() > 0
    )


def _clash(one: tuple[torch.Tensor, bool], two: tuple[torch.Tensor, bool]) -> bool:
    return (one[1] or two[1]) and _overlap(one[0], two[0])


def _overlap(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Return whether two tensors share memory."""
    return overlap(region_of(one, one.data_ptr()), region_of(two, two.data_ptr()))


def _is_within(one: torch.Tensor, two: torch.Tensor) -> bool:
    inner, outer = region_of(one, one.data_ptr()), region_of(two, two.data_ptr())
    return outer.begin <= inner.begin and inner.end <= outer.end


def _reads(name: str, tensors: Sequence[torch.Tensor], result: Any, flight: _Flight) -> bool:
    """Return whether the function *name* has read what *flight* will write."""
    wanted = [tensor for tensor, is_wanted in flight.buffers if is_wanted]
    given = [tensor for tensor, is_wanted in flight.buffers if not is_wanted]
    touched = [
        one
        for one in tensors
        if _is_followed(one)
        and any(_overlap(one, two) for two in wanted)
        and not any(_is_within(one, two) for two in given)  # a gather in place leaves a rank's own part
    ]
    if not touched or name in _MAKE_ALIKE:
        return False
    if any(one.device.type not in ("cpu", "meta") for one in tensors_in(result)):
        return True  # a copy to a device
    made = [one for one in tensors_in(result) if _is_followed(one)]
    if not made:
        return name in _LOOK or name in ("backward", *_STEPS)
    return not all(any(_overlap(one, two) for two in touched) for one in made)


_STEPS = ("_foreach_add_", "_foreach_mul_", "_foreach_div_", "_foreach_norm", "_fused_sgd_", "_fused_adam_")


def _changed(flight: _Flight) -> str:
    return f"changes a buffer that {flight.operation} of {flight.place} has in flight; wait for it first"


def _of_forgotten(flight: _Flight) -> str:
    """Return what is wrong with a flight that nobody has waited for until the end; nothing if it is well."""
    if any(is_wanted for _, is_wanted in flight.buffers):
        return f"nobody waits for what {flight.operation} gives; call wait() of what it returns"
    unsent = any(getattr(work, "completed_ps", 0) is None for work in flight.work._works)
    return f"nobody has received what {flight.operation} sends, or waits for it" if unsent else ""
