"""Wasted reductions: gradients that DDP averages several times for one step of the optimizer.

Of several backward passes before a step only the last needs to reduce: DDP's ``no_sync`` holds the others
back.  A bucket that more than one backward pass has reduced, before two steps that follow each other, is
noticed.  Steps of all optimizers count, as one of two models' may use gradients that the next pass replaces;
passes within a step, as of LBFGS, do not.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from collectives.virtual.diagnosis.watched_calls import WatchedCall
from collectives.virtual.notices import Findings
from sim.cluster import current_rank_thread

_IN_A_ROW = 2


@dataclass
class _Bucket:
    """A bucket of a rank: how many backward passes have reduced it since the last step, and before it."""

    passes: int = 0
    place: str = ""
    times: int = 0
    in_a_row: int = 0


class WastedReductions:
    """Counts how often each bucket is reduced between two steps of the optimizer."""

    def __init__(self) -> None:
        self._buckets: defaultdict[int, dict[tuple[int, int], _Bucket]] = defaultdict(dict)
        self._found = Findings()

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch meanwhile."""
        with (
            register_optimizer_step_pre_hook(self._steps),
            register_optimizer_step_post_hook(self._stepped),
        ):
            yield

    def mistakes(self) -> Iterator[str]:
        """Yield what was found, with the ranks that did it."""
        return self._found.texts()

    def began(self, call: WatchedCall) -> None:
        """Count *call*, if it reduces a bucket in a backward pass."""
        if call.operation != "all_reduce" or not call.is_of_backward or len(call.wanted) != 1:
            return
        (tensor,) = call.wanted
        if tensor.device.type != "cpu" or tensor.layout != torch.strided:
            return
        key = tensor.data_ptr(), tensor.numel()
        bucket = self._buckets[call.rank_thread.rank].setdefault(key, _Bucket())
        bucket.passes += 1
        bucket.place = call.place

    def _steps(self, *_: Any) -> None:
        """Note that an optimizer of the rank whose thread this is takes a step."""
        rank_thread = current_rank_thread()
        if rank_thread is None:
            return
        for bucket in self._buckets[rank_thread.rank].values():
            times = bucket.passes
            if not times:
                continue
            bucket.in_a_row = bucket.in_a_row + 1 if times > 1 and times == bucket.times else int(times > 1)
            bucket.times, bucket.passes = times, 0
            if bucket.in_a_row >= _IN_A_ROW:
                self._found.add(
                    rank_thread.rank,
                    bucket.place,
                    f"DDP averages gradients {times} times for each step of the optimizer; put all backward "
                    "passes but the last into no_sync()",
                )

    def _stepped(self, *_: Any) -> None:
        """Forget the passes of the step that the rank has taken."""
        rank_thread = current_rank_thread()
        if rank_thread is not None:
            for bucket in self._buckets[rank_thread.rank].values():
                bucket.passes = 0
