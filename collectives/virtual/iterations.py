"""Iterations of a training script on each rank, each of which ends with a step of an optimizer.

With several optimizers on a rank, the one that has stepped most often counts, so that a wrapped
optimizer, or one for each part of a model, makes no iteration longer or shorter.  One that steps for the
first time joins the iteration that has just ended, so that one made later, as after a restart, counts too.
A script that says itself where its iterations end, by `end_iteration`, is taken at its word.

On a GPU the host runs ahead, so an iteration ends when the compute stream has done what the host had issued
by then.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from collectives.virtual.streams.account import Cause, PlayedMark
from collectives.virtual.streams.gpu import current_gpu
from collectives.virtual.streams.gpus import Gpus
from sim.cluster import Cluster, RankThread, current_rank_thread
from sim.cluster.surroundings import OfCluster
from sim.hardware import NOTHING, Issued


@dataclass(frozen=True)
class End:
    """The end of an iteration on a rank.

    Attributes:
        now_ps: the rank's local time.
        computed_ps: how much of it was computation.
        host_idle_ps: on a GPU, how much of it the compute stream has waited for the host.
        exposed: on a GPU, how much of it the compute stream has waited for what.
        lost: on a GPU, what it has lost, by `collectives.virtual.streams.losses`.
        issued: on a GPU, what has taken the host's time.
    """

    now_ps: int
    computed_ps: int
    host_idle_ps: int = 0
    exposed: Mapping[Cause, int] = field(default_factory=dict)
    lost: Mapping[str, int] = field(default_factory=dict)
    issued: Issued = NOTHING

    @classmethod
    def of(cls, mark: PlayedMark) -> End:
        """Return the end at *mark*: when the compute stream has done what was issued before."""
        return cls(mark.device_ps, mark.busy_ps, mark.host_idle_ps, mark.exposed, mark.lost, mark.issued)


class Iterations(OfCluster):
    """Counts the iterations of the rank threads of one run.

    Attributes:
        finished: how many iterations each rank has finished.
        ends: of each rank, where they ended.
    """

    def __init__(self, num_ranks: int) -> None:
        self.finished = [0] * num_ranks
        self.ends: list[list[End]] = [[] for _ in range(num_ranks)]
        self._marked = [False] * num_ranks
        self._marks: list[list[int]] = [[] for _ in range(num_ranks)]
        self._steps: WeakKeyDictionary[Optimizer, int] = WeakKeyDictionary()
        self._listeners: list[Callable[[RankThread, int], None]] = []
        self._before_end: list[Callable[[RankThread, int], None]] = []

    def on_end(self, listener: Callable[[RankThread, int], None]) -> None:
        """Call ``listener(rank_thread, finished)`` on its thread when a rank has finished an iteration."""
        self._listeners.append(listener)

    def before_end(self, listener: Callable[[RankThread, int], None]) -> None:
        """Call ``listener(rank_thread, number)`` on its thread when a rank is about to finish an iteration.

        On a GPU, that is before the end is marked and before the engine comes to it.
        """
        self._before_end.append(listener)

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Count the steps of all optimizers of rank threads meanwhile."""
        with register_optimizer_step_post_hook(lambda optimizer, *_: self.stepped(optimizer)):
            yield

    def mark(self, rank_thread: RankThread) -> None:
        """Note that the rank says itself that an iteration has ended; its optimizers count no more."""
        rank = rank_thread.rank
        if not self._marked[rank]:
            self._marked[rank] = True
            self.finished[rank] = 0
            self.ends[rank].clear()
            self._marks[rank].clear()
        self._end(rank_thread)

    def stepped(self, optimizer: Optimizer) -> None:
        """Note that *optimizer* has made a step on the rank whose thread this is."""
        rank_thread = current_rank_thread()
        if rank_thread is None or self._marked[rank_thread.rank]:
            return
        finished = self.finished[rank_thread.rank]
        self._steps[optimizer] = steps = self._steps.get(optimizer, max(0, finished - 1)) + 1
        if steps > finished:
            self._end(rank_thread)

    def _end(self, rank_thread: RankThread) -> None:
        rank, gpu = rank_thread.rank, current_gpu()
        for listener in self._before_end:
            listener(rank_thread, self.finished[rank] + 1)
        if gpu is not None:
            self._marks[rank].append(gpu.mark("iteration"))
            gpu.flush()
        else:
            self.ends[rank].append(End(rank_thread.now_ps(), rank_thread.computed_ps))
        self.finished[rank] += 1
        for listener in self._listeners:
            listener(rank_thread, self.finished[rank])

    def conclude(self, gpus: Gpus) -> None:
        """Note where the iterations ended of all ranks that were on a GPU."""
        for thread, rank, played in gpus.played():
            marks = played.marks
            self.ends[rank] = [End.of(marks[number]) for number in self._marks[thread] if number < len(marks)]
            self.finished[rank] = self.finished[thread]


def end_iteration() -> None:
    """Say that an iteration of the training ends here, on this rank.

    Needed only where it does not end with an optimizer's step; does nothing outside of a virtual run.
    """
    rank_thread = Cluster.current()
    if rank_thread is not None:
        Iterations.of(rank_thread.cluster).mark(rank_thread)
