"""Measured model of computation: the CPU time of the rank's thread, times a factor.

The one model that does not repeat, as processors do not.  What the thread does between two places where
control changes hands is charged at the second; so is what it does in Python for a collective.  Only this
thread counts: torch runs its kernels in it, as each rank thread has one.  Of an operation on virtual CUDA
tensors its kernel alone counts, which the CPU carries out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from collectives.errors import NotSupportedError
from sim.cluster import RankThread


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
