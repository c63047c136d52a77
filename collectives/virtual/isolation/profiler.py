"""Profiler of each rank: ``torch.profiler`` sees the operations of its own rank, in virtual time.

Torch's profiler in C++ is one for the process: two of them end it.  Under it lies an older one for each
thread, which a rank gets instead.  It has the clock of this machine, so every call of a collective leaves a
mark there, at which the rank's virtual time is known; between two marks, virtual time is divided among
operations as the CPU divided its own.  Collectives are events of their own, named as the backend that the
script has asked for names them.

Source: names of collectives, ``ProcessGroupGloo.cpp`` and ``ProcessGroupNCCL.cpp`` of torch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch.autograd.profiler
from torch._C._profiler import ProfilerConfig, ProfilerState, _ExperimentalConfig
from torch.autograd import profiler_util

from collectives.torch_backend import TestbedProcessGroup
from collectives.torch_backend.work import CollectiveWork
from collectives.virtual.diagnosis.watched_calls import CallListeners, WatchedCall, calls_watched
from collectives.virtual.isolation.patching import Replacement, on_ranks, replaced
from collectives.virtual.isolation.profiled_events import ProfiledEvent, RankProfile
from collectives.virtual.notices import Notices
from collectives.virtual.streams.gpu import current_gpu
from sim.cluster import RankThread

_autograd: Any = torch.autograd
_profiler: Any = torch.autograd.profiler
_filter_name: Callable[[str], bool] = profiler_util._filter_name
_PS_PER_NS = 1000
_MARK = "virtual time "
_NOTICE = (
    "torch.profiler shows each rank its own operations; the virtual time between two collectives is divided "
    "among them as this machine's CPU divided its own, and kernels of devices are in --trace alone"
)
_NAMES = {
    "all_gather_single": "_all_gather_base",
    "_allgather_base": "_all_gather_base",
    "reduce_scatter_single": "_reduce_scatter_base",
    "_reduce_scatter_base": "_reduce_scatter_base",
    "recv_anysource": "recvAnySource",
}
"""What torch's backends call a collective in a profile, where it is not its name, by the group's method."""


@contextmanager
def profilers_of_ranks() -> Iterator[None]:
    """Let each rank thread have a profiler of its own."""
    profilers = _Profilers()
    listeners = CallListeners([profilers.begins], [profilers.began], [profilers.ended])
    with replaced(profilers.replacements()), calls_watched(listeners):
        yield


class _Profilers:
    """The profilers of the ranks of a run: what those record that are enabled."""

    def __init__(self) -> None:
        self._of_rank: dict[int, _Recording] = {}

    def replacements(self) -> Iterator[Replacement]:
        """Yield what stands in torch."""
        nothing = lambda *args, **options: None  # noqa: E731
        enable, disable = _profiler._enable_profiler, _profiler._disable_profiler
        yield _autograd, "_add_metadata_json", on_ranks(_autograd._add_metadata_json, nothing)
        yield _profiler, "_prepare_profiler", on_ranks(_profiler._prepare_profiler, nothing)
        yield _profiler, "_enable_profiler", on_ranks(enable, functools.partial(self._enable, enable))
        yield _profiler, "_disable_profiler", on_ranks(disable, functools.partial(self._disable, disable))

    def _enable(
        self, original: Callable[..., Any], rank_thread: RankThread, config: Any, activities: Any, *rest: Any
    ) -> Any:
        if not activities:  # then it writes marks for other tools
            return original(config, activities, *rest)
        Notices.of(rank_thread.cluster).add(_NOTICE)
        _autograd._enable_profiler_legacy(
            ProfilerConfig(ProfilerState.CPU, True, False, False, False, False, _ExperimentalConfig(), "")
        )
        self._of_rank[rank_thread.rank] = _Recording(rank_thread)
        return None

    def _disable(self, original: Callable[[], Any], rank_thread: RankThread) -> Any:
        recording = self._of_rank.pop(rank_thread.rank, None)
        return original() if recording is None else recording.end()

    def begins(self, rank_thread: RankThread, group: TestbedProcessGroup, operation: str) -> None:
        """Mark that a collective begins, if that is recorded."""
        if rank_thread.rank in self._of_rank:
            self._of_rank[rank_thread.rank].begin_call()

    def began(self, call: WatchedCall) -> None:
        """Record a collective."""
        recording = self._of_rank.get(call.rank_thread.rank)
        if recording is not None:
            backend = call.group.backend_asked_for or call.group.name()
            shapes = [list(tensor.shape) for tensor in call.given or call.wanted]
            name = _NAMES.get(call.method, call.operation)
            recording.calls.append(_Call(f"{backend}:{name}", shapes, recording.call_mark, call.work))
            recording.mark()

    def ended(self, rank_thread: RankThread, work: CollectiveWork) -> None:
        """Mark that a rank has waited."""
        if rank_thread.rank in self._of_rank:
            self._of_rank[rank_thread.rank].mark()


@dataclass
class _Call:
    """A call of a collective: its name, what was given, at which mark it began, and its work."""

    name: str
    shapes: list[list[int]]
    mark: int
    work: CollectiveWork

    def end_ps(self, otherwise_ps: int) -> int:
        """Return when its result was in place; or, where that is not known, *otherwise_ps*."""
        ends = [getattr(work, "completed_ps", None) for work in self.work._works]
        return max([end for end in ends if end is not None], default=otherwise_ps)


@dataclass
class _Recording:
    """What one rank does while its profiler is enabled.

    Attributes:
        rank_thread: the rank.
        marks_ps: the virtual time at each mark; None where reading the clock would hold up the rank.
        calls: of collectives.
        call_mark: number of the mark at which the latest call has begun.
    """

    rank_thread: RankThread
    marks_ps: list[int | None] = field(default_factory=list)
    calls: list[_Call] = field(default_factory=list)
    call_mark: int = 0

    def __post_init__(self) -> None:
        self._leave_mark(self._now_ps())

    def mark(self) -> None:
        """Note the virtual time that it is, where reading the clock does not hold up the rank."""
        self._leave_mark(None if current_gpu() is not None else self._now_ps())

    def begin_call(self) -> None:
        """Note that a collective is called now."""
        self.call_mark = len(self.marks_ps)
        self.mark()

    def end(self) -> RankProfile:
        """Disable the thread's profiler, and return what it has seen, in virtual time."""
        self._leave_mark(self._now_ps())
        records = [record for thread in _autograd._disable_profiler_legacy() for record in thread]
        start = next(record for record in records if record.name() == "__start_profile")
        times_us = {id(record): start.cpu_elapsed_us(record) for record in records}

        at_marks_us = [
            times_us[id(record)]
            for record in records
            if record.kind() == "push" and record.name().startswith(_MARK)
        ]
        marks = zip(at_marks_us, self.marks_ps, strict=True)
        known = np.array([(at_us, mark_ps) for at_us, mark_ps in marks if mark_ps is not None], dtype=float)

        def virtual_ns(at_us: float) -> int:
            return round(float(np.interp(at_us, known[:, 0], known[:, 1])) / _PS_PER_NS)

        end_ps = self.marks_ps[-1]
        assert end_ps is not None
        events = self._operations(records, lambda record: virtual_ns(times_us[id(record)]))
        for call in self.calls:
            began_ns = virtual_ns(at_marks_us[call.mark])
            ended_ns = max(began_ns, call.end_ps(end_ps) // _PS_PER_NS)
            events.append(self._event(call.name, began_ns, ended_ns, shapes=call.shapes, is_async=True))
        events.sort(key=lambda event: event.start_ns())
        return RankProfile(self.rank_thread.rank, virtual_ns(at_marks_us[0]), events)

    def _operations(self, records: list[Any], virtual_ns: Callable[[Any], int]) -> list[ProfiledEvent]:
        """Return the operations that *records* say the beginning and the end of."""
        open_records: dict[Any, Any] = {}
        events = []
        for record in records:
            if record.kind() == "push":
                open_records[record.handle()] = record
            elif record.kind() == "pop" and record.handle() in open_records:
                began = open_records.pop(record.handle())
                if began.name().startswith(_MARK) or _filter_name(began.name()):
                    continue
                events.append(
                    self._event(
                        began.name(),
                        virtual_ns(began),
                        virtual_ns(record),
                        correlation_id=began.handle(),
                        shapes=began.shapes(),
                        scope=began.scope(),
                        sequence_nr=began.sequence_nr(),
                    )
                )
        return events

    def _event(self, name: str, start_ns: int, end_ns: int, **values: Any) -> ProfiledEvent:
        values.setdefault("correlation_id", 0)
        return ProfiledEvent(
            name=name, start_ns=start_ns, end_ns=end_ns, start_thread_id=2 * self.rank_thread.rank, **values
        )

    def _now_ps(self) -> int:
        gpu = current_gpu()
        return self.rank_thread.now_ps() if gpu is None else gpu.now_ps()

    def _leave_mark(self, now_ps: int | None) -> None:
        """Leave a mark among the records of the thread's profiler."""
        with _profiler.record_function(f"{_MARK}{len(self.marks_ps)}"):
            self.marks_ps.append(now_ps)
