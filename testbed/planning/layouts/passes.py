"""Passes of a pipeline's stages as a run by 1F1B computes them: how long each takes, and what it holds.

Torch's own stages are watched (`torch.distributed.pipelining.PipelineStage`): a pass is from where its inputs
are there to its end, in the last stage with the loss.  The first micro-batch of an iteration counts by
itself, as it may wait for parameters, and begins gradients; for all others the last one does.  The peak that
a script reads in an iteration is that since the last pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from collectives.virtual.isolation.patching import Replacement, observed, replaced
from collectives.virtual.iterations import Iterations
from collectives.virtual.memory.memories import Memories
from collectives.virtual.streams.gpu import current_gpu
from collectives.virtual.streams.gpus import Gpus
from sim.cluster import Cluster, RankThread
from sim.cluster.surroundings import OfCluster
from sim.units import to_seconds
from testbed.planning.layouts.schedule import BACKWARD, FORWARD, Action, Pass


@dataclass(frozen=True)
class Passes:
    """Passes of a run's last iteration.

    Attributes:
        takes: by kind and stage, and whether it is the first of them, what a pass takes.
        message_seconds: from one stage to the next.
        most_bytes: of the first and of the last rank, what is held at most in passes.
        outside_bytes: of both, what is held at most outside of passes, in the whole run.
        buffer_bytes: by stage, what is held for the messages of each micro-batch.
    """

    takes: Mapping[tuple[str, int, bool], Pass]
    message_seconds: float
    most_bytes: tuple[int, int]
    outside_bytes: tuple[int, int]
    buffer_bytes: Mapping[int, int]

    @classmethod
    def of(cls, cluster: Cluster) -> Passes | None:
        """Return those of a run on *cluster*, of each stage on its first rank; None: there were none."""
        watched = _Watched.of(cluster)
        if not watched.of_rank:
            return None
        last = Iterations.of(cluster).finished[0] - 1
        of_stage: dict[int, _OfRank] = {}
        for rank in sorted(watched.of_rank):
            own = watched.of_rank[rank]
            of_stage.setdefault(own.seen[0].action.stage, own)
        takes, times = dict[tuple[str, int, bool], Pass](), dict[Action, tuple[float, float]]()
        for own in of_stage.values():
            seen = [one for one in own.seen if one.iteration == last]
            marks = Gpus.of(cluster).of_rank[own.rank].players.of(own.rank).played.marks
            for one, following in pairwise([*seen, None]):
                assert one is not None
                begin, end = (marks[number] for number in (one.begin, one.end))
                times[one.action] = to_seconds(begin.device_ps), to_seconds(end.device_ps)
                kept = (one.after if following is None else following.before) - one.before
                takes[one.action.alike] = Pass(
                    to_seconds(end.device_ps - begin.device_ps),
                    to_seconds(end.busy_ps - begin.busy_ps),
                    kept,
                    one.most - one.before,
                )
        ends = [of_stage[stage].bytes_of(last) for stage in (0, max(of_stage))]
        return cls(
            takes,
            max(0.0, times[Action(FORWARD, 1, 0)][0] - times[Action(FORWARD, 0, 0)][1]),
            (ends[0][0], ends[1][0]),
            (ends[0][1], ends[1][1]),
            {stage: nbytes for own in of_stage.values() for stage, nbytes in own.buffers.items()},
        )


@contextmanager
def passes_watched() -> Iterator[None]:
    """Watch the passes of pipelines' stages meanwhile, on rank threads; backward passes are whole."""
    from torch.distributed.pipelining.schedules import _PipelineSchedule
    from torch.distributed.pipelining.stage import _PipelineStageBase

    def around(name: str, kind: str) -> Replacement:
        def begin(rank_thread: RankThread, stage: Any, number: int, *_: Any, **__: Any) -> None:
            _Watched.on(rank_thread).begin(Action(kind, stage.stage_index, number), stage)

        def end(rank_thread: RankThread, *_: Any, **__: Any) -> None:
            _Watched.on(rank_thread).end()

        return _PipelineStageBase, name, observed(getattr(_PipelineStageBase, name), begin, end)

    def end_with_loss(rank_thread: RankThread, _: None, schedule: Any, stage: Any, *__: Any) -> None:
        if stage.is_last:
            _Watched.on(rank_thread).end()

    loss = observed(_PipelineSchedule._maybe_compute_loss, after=end_with_loss)
    with replaced(
        [
            around("forward_one_chunk", FORWARD),
            around("backward_one_chunk", BACKWARD),
            (_PipelineSchedule, "_maybe_compute_loss", loss),
        ]
    ):
        yield


@dataclass
class _Seen:
    """A pass of an iteration: marks of its begin and end; bytes before, behind it, and at most."""

    action: Action
    iteration: int
    begin: int
    before: int
    end: int = 0
    after: int = 0
    most: int = 0


class _OfRank:
    """The passes of one rank thread, and what is held besides."""

    def __init__(self, rank_thread: RankThread) -> None:
        self.rank = rank_thread.rank
        self.seen: list[_Seen] = []
        self.buffers: dict[int, int] = {}
        self._outside = 0
        self._iterations = Iterations.of(rank_thread.cluster)
        self._held = Memories.of(rank_thread.cluster).of_ranks[self.rank].allocator.statistics.allocated_bytes

    def begin(self, action: Action, stage: Any) -> None:
        """Note that a pass of *stage* begins."""
        iteration, held, gpu = self._iterations.finished[self.rank], self._held.total, current_gpu()
        assert gpu is not None
        if self.seen and self.seen[-1].iteration == iteration:
            self.seen[-1].most = max(self.seen[-1].most, held.peak)
        else:
            self._outside = max(self._outside, held.peak)
        if action.kind == FORWARD and not action.micro_batch:
            received = (*stage.args_recv_info.get(0, ()), *stage.grad_recv_info.get(0, ()))
            buffers = (getattr(own, "buffer", None) for own in received)
            self.buffers[stage.stage_index] = sum(
                own.untyped_storage().nbytes() for own in buffers if isinstance(own, torch.Tensor)
            )
        self.seen.append(_Seen(action, iteration, gpu.mark("pass"), held.current))
        held.peak = held.current

    def end(self) -> None:
        """Note that the last pass ends here, and not earlier."""
        one, held, gpu = self.seen[-1], self._held.total, current_gpu()
        assert gpu is not None
        one.end, one.after, one.most = gpu.mark("end of a pass"), held.current, max(one.most, held.peak)
        held.peak = held.current

    def bytes_of(self, iteration: int) -> tuple[int, int]:
        """Return what is held at most in passes of an iteration, and outside of all passes."""
        most = max(one.most for one in self.seen if one.iteration == iteration)
        return most, max(self._outside, self._held.total.peak)


class _Watched(OfCluster):
    """The passes of the rank threads of one run."""

    def __init__(self) -> None:
        self.of_rank: dict[int, _OfRank] = {}

    @classmethod
    def on(cls, rank_thread: RankThread) -> _OfRank:
        """Return those of that rank's thread."""
        of_rank = cls.of(rank_thread.cluster).of_rank
        if rank_thread.rank not in of_rank:
            of_rank[rank_thread.rank] = _OfRank(rank_thread)
        return of_rank[rank_thread.rank]
