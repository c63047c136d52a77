"""Clock of a script: ``time.time`` and its kin tell the virtual time of the rank, on a GPU that of its host.

So what a script measures itself, such as tokens per second, is what it would measure on the cluster: on a GPU
the host's time, which the device may lag behind unless the script synchronizes.  ``time.sleep`` lets virtual
time pass; records of ``logging`` bear it.  Code of torch, of the rest of the standard library and of this
project goes on seeing the machine's clock, as does what had taken a function out of ``time`` by name before
the run; and ``datetime``, which is in C.

A clock that is read twice at one instant has gone on by a nanosecond, so a script may divide by what it
measures.  Who does nothing but read it, until time has passed, is taken to wait: after so many readings each
takes `_WAITED_PS`.
"""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
import time
import timeit
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias
from weakref import WeakKeyDictionary

import simpy
import torch

from collectives.virtual.faults.faults import RankFaults
from collectives.virtual.isolation.ownership import LIBRARY_FOLDERS
from collectives.virtual.isolation.patching import Replacement, replaced
from collectives.virtual.notices import Notices
from collectives.virtual.streams.gpu import Gpu, current_gpu
from collectives.virtual.time_outs import Pauses
from sim.cluster import RankThread, current_rank_thread
from sim.units import SECOND

ScriptClock: TypeAlias = Literal["virtual", "real"]
"""The time that a script reads: the rank's, or the machine's."""

_STANDARD = Path(sysconfig.get_paths()["stdlib"])
_OF_SCRIPTS = frozenset({str(_STANDARD / "logging" / "__init__.py")})
_PROJECT = Path(__file__).parents[2]
_OWN = tuple(
    f"{folder}{os.sep}"
    for folder in (
        *(_PROJECT / package for package in ("collectives", "ddp", "sim", "testbed")),
        *(Path(package.__path__[0]) for package in (torch, simpy)),
    )
)
_PS_PER_NS = SECOND // 10**9
_PATIENCE = 1000  # readings at one instant, before who reads is taken to wait
_WAITED_PS = SECOND // 10_000


@dataclass
class _Clock:
    """The clock of one rank.

    Attributes:
        rank_thread: of the rank.
        told_ns: by name of a function, what it has said last.
        stood_at_ps: the rank's time when it was last read.
        readings: how many there were at that time.
    """

    rank_thread: RankThread
    told_ns: dict[str, int] = field(default_factory=dict)
    stood_at_ps: int = -1
    readings: int = 0

    def read_ns(self, name: str) -> int:
        """Return the nanoseconds since the run began, later than those that *name* has told before."""
        now_ps = self._now_ps()
        self.readings = self.readings + 1 if now_ps == self.stood_at_ps else 0
        if self.readings > _PATIENCE:
            Notices.of(self.rank_thread.cluster).add(
                "a script waits by reading the clock over and over; each reading then takes 100 us "
                "(time.sleep takes what it says)"
            )
            self.let_pass(_WAITED_PS, "wait")
            now_ps = self._now_ps()
        self.stood_at_ps = now_ps
        told_ns = self.told_ns[name] = max(now_ps // _PS_PER_NS, self.told_ns.get(name, -1) + 1)
        return told_ns

    def let_pass(self, duration_ps: int, name: str) -> None:
        """Let *duration_ps* pass on the rank; on a GPU it is work of the host."""
        gpu = current_gpu()
        if name == "sleep":
            Pauses.of(self.rank_thread.cluster).note(self.rank_thread.rank, duration_ps)
        if gpu is not None:
            gpu.host_work(name, duration_ps)
            return
        self.rank_thread.charge_ps(duration_ps)
        self.rank_thread.poll(self.rank_thread.cluster.env.event())  # the others have come to this time

    def _now_ps(self) -> int:
        gpu: Gpu | None = current_gpu()
        return self.rank_thread.now_ps() if gpu is None else gpu.now_ps()


def clock_of_script(clock: ScriptClock, stands_still: bool = False) -> AbstractContextManager[None]:
    """Return a context in which scripts read this *clock* on rank threads.

    ``time.time`` starts where the machine's clock is, all others at 0.

    Args:
        clock: which.
        stands_still: computation takes no time, which a notice tells a script that reads the clock.

    Raises:
        ValueError: there is no such clock.
    """
    if clock not in ("virtual", "real"):
        raise ValueError(f"no clock {clock!r} for scripts: expected virtual, the rank's time, or real")
    return nullcontext() if clock == "real" else replaced(_replacements(time.time_ns(), stands_still))


def _replacements(epoch_ns: int, stands_still: bool) -> Iterator[Replacement]:
    clocks: WeakKeyDictionary[RankThread, _Clock] = WeakKeyDictionary()

    def clock_of(rank_thread: RankThread) -> _Clock:
        if rank_thread not in clocks:
            clocks[rank_thread] = _Clock(rank_thread)
        return clocks[rank_thread]

    def read_ns(rank_thread: RankThread, name: str) -> int:
        if stands_still:
            Notices.of(rank_thread.cluster).add(
                "the script reads the clock, which tells virtual time: computation takes none of it without "
                "a model of computation (--compute); the machine's time: --clock real"
            )
        return clock_of(rank_thread).read_ns(name)

    def jump_ns(rank_thread: RankThread) -> int:
        return RankFaults.clock_jump_ps(rank_thread.cluster, rank_thread.rank) // _PS_PER_NS

    def sleep(rank_thread: RankThread, seconds: float) -> None:
        if seconds < 0:
            raise ValueError("sleep length must be non-negative")
        clock_of(rank_thread).let_pass(round(seconds * SECOND), "sleep")

    def telling(name: str) -> Callable[[RankThread], float]:
        if name == "time_ns":
            return lambda rank_thread: epoch_ns + read_ns(rank_thread, name) + jump_ns(rank_thread)
        if name == "time":
            return lambda rank_thread: (
                epoch_ns / 1e9 + read_ns(rank_thread, name) / 1e9 + jump_ns(rank_thread) / 1e9
            )
        if name.endswith("_ns"):
            return lambda rank_thread: read_ns(rank_thread, name)
        return lambda rank_thread: read_ns(rank_thread, name) / 1e9

    for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"):
        yield time, name, _of_scripts(getattr(time, name), telling(name))
    yield time, "sleep", _of_scripts(time.sleep, sleep)
    yield timeit, "default_timer", _of_scripts(timeit.default_timer, telling("perf_counter"))


def _of_scripts(original: Callable[..., Any], virtual: Callable[..., Any]) -> Callable[..., Any]:
    """Return what is *virtual*, called with the rank thread, for scripts on one, else *original*."""
    process = os.getpid()

    @functools.wraps(original)
    def called(*args: Any) -> Any:
        rank_thread = current_rank_thread()
        if rank_thread is None or os.getpid() != process:
            return original(*args)
        frame = sys._getframe(1)
        if not _is_of_script(frame.f_code.co_filename):
            return original(*args)
        return virtual(rank_thread, *args)

    return called


@functools.lru_cache(maxsize=1024)
def _is_of_script(file: str) -> bool:
    """Return whether code in *file* is the script's, or of a package that it uses, or logging's."""
    if file.startswith(("<frozen", *_OWN)):
        return False
    if file in _OF_SCRIPTS:
        return True
    path = Path(file)
    return not path.is_relative_to(_STANDARD) or not LIBRARY_FOLDERS.isdisjoint(path.parts)
