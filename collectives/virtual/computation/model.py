"""Models of computation: their protocol, explicit charges, and the processor time of the rank's thread.

A measured model is the one that does not repeat, as processors do not.  What the thread does between two
places where control changes hands is charged at the second; so is what it does in Python for a collective.
Only this thread counts: torch runs its kernels in it, as each rank thread has one.  Of an operation on
virtual CUDA tensors its kernel alone counts, which the CPU carries out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from collectives.errors import NotSupportedError
from collectives.virtual.streams.gpu import current_gpu
from sim.cluster import Cluster, RankThread
from sim.units import Quantity, parse_time


@runtime_checkable
class ComputeModel(Protocol):
    """Charges what a rank computes to its clock."""

    @property
    def name(self) -> str:
        """How the figure was got, for reports, such as ``roofline of h100``."""

    @property
    def repeats(self) -> bool:
        """Whether the same script takes the same virtual time in every run."""

    def on_rank(self, rank_thread: RankThread) -> AbstractContextManager[None]:
        """Return what is entered on the rank's thread before the user's function, and left after it."""


@dataclass(frozen=True)
class Charges:
    """Picoseconds per kind of work, as `Clock.charge` names it; other work takes no time.

    Our own DistributedDataParallel names ``forward`` and ``gradient:conv1.weight``.
    """

    picoseconds: Mapping[str, int] = field(default_factory=dict)
    name: str = "explicit charges"
    repeats: bool = True

    @contextmanager
    def on_rank(self, rank_thread: RankThread) -> Iterator[None]:
        """Charge by these figures."""
        before, rank_thread.charges = rank_thread.charges, self.picoseconds
        try:
            yield
        finally:
            rank_thread.charges = before


def compute(seconds: Quantity, name: str = "compute") -> None:
    """Let the current rank compute for *seconds* of virtual time; outside of a cluster do nothing.

    So a script that says how long its pieces take still runs for real.  On a slow rank it takes its
    factor as long.  On a GPU it is a kernel on the current stream.

    Args:
        seconds: ``"1.5ms"``, or a number of seconds.
        name: under which the trace shows it.

    Raises:
        UnitError: no time, or a negative one.
    """
    duration_ps = parse_time(seconds, "compute")
    rank_thread, gpu = Cluster.current(), current_gpu()
    if gpu is not None:
        gpu.launch(name, duration_ps)
    elif rank_thread is not None:
        rank_thread.compute(duration_ps, name)


class _NotCounted(threading.local):
    """What a thread has worked that is no computation of its rank."""

    nanoseconds = 0


_not_counted = _NotCounted()


def do_not_count(nanoseconds: int) -> None:
    """Let so much of what this thread has worked be no computation of its rank."""
    _not_counted.nanoseconds += nanoseconds


def _counted_ns() -> int:
    return time.thread_time_ns() - _not_counted.nanoseconds


@dataclass(frozen=True)
class Measured:
    """Thread CPU time × *factor*: a `collectives.virtual.computation.ComputeModel`.

    Attributes:
        factor: how many times as long the device takes as this machine, 0.1 for one ten times as fast.

    Raises:
        NotSupportedError: the factor is not above 0.
    """

    factor: float = 1.0
    repeats: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.factor < float("inf"):
            raise NotSupportedError(f"factor: expected a number above 0, such as 0.1, got {self.factor}")

    @property
    def name(self) -> str:
        """How the figure is got."""
        return f"measured CPU time × {self.factor:g}"

    @contextmanager
    def on_rank(self, rank_thread: RankThread) -> Iterator[None]:
        """Charge what this thread uses of its processor."""
        latest_ns = _counted_ns()

        def meter() -> int:
            nonlocal latest_ns
            before_ns, latest_ns = latest_ns, _counted_ns()
            return int((latest_ns - before_ns) * 1000 * self.factor)

        rank_thread.meter = meter
        try:
            yield
            rank_thread.now_ps()
        finally:
            rank_thread.meter = None
