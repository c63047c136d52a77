"""Which iteration each rank is in: an iteration ends with a step of an optimizer.

With several optimizers on a rank, the one that has stepped most often counts, so that a wrapped
optimizer, or one for each part of a model, makes no iteration longer or shorter.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from weakref import WeakKeyDictionary

from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from sim.rank_thread import RankThread, current_rank_thread


class Iterations:
    """Counts the iterations of the rank threads of one run.

    Args:
        num_ranks: number of ranks.

    Attributes:
        finished: how many iterations each rank has finished.
    """

    def __init__(self, num_ranks: int) -> None:
        self.finished = [0] * num_ranks
        self._steps: WeakKeyDictionary[Optimizer, int] = WeakKeyDictionary()
        self._listeners: list[Callable[[RankThread, int], None]] = []

    def on_end(self, listener: Callable[[RankThread, int], None]) -> None:
        """Call ``listener(rank_thread, finished)`` on its thread when a rank has finished an iteration."""
        self._listeners.append(listener)

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Count the steps of all optimizers of rank threads meanwhile."""
        hook = register_optimizer_step_post_hook(self._stepped)
        try:
            yield
        finally:
            hook.remove()

    def _stepped(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        rank_thread = current_rank_thread()
        if rank_thread is None:
            return
        self._steps[optimizer] = steps = self._steps.get(optimizer, 0) + 1
        if steps > self.finished[rank_thread.rank]:
            self.finished[rank_thread.rank] = steps
            for listener in self._listeners:
                listener(rank_thread, steps)
