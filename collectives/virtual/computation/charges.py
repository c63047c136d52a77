"""Explicit charges: whoever computes says how long that takes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from collectives.virtual.streams.gpu import current_gpu
from sim.cluster import Cluster, RankThread
from sim.units import Quantity, parse_time


@dataclass(frozen=True)
class Charges:
    """Picoseconds per kind of work, as `Clock.charge` names it; other work takes no time.

    Our own DistributedDataParallel names ``forward`` and ``gradient:conv1.weight``.

    Attributes:
        picoseconds: by the name of the work.
        name: how the figures were got.
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
