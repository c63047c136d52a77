"""Hooks of torch that a model of computation has while ranks run, and what it keeps for each rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

from torch.utils.hooks import RemovableHandle

from sim.cluster import RankThread
from sim.cluster.rank_thread import current_rank_thread

T = TypeVar("T")


class RankHooks(Generic[T]):
    """Hooks of each rank, which has torch's global hooks for itself, and one value for each.

    Args:
        register: registers the hooks; a hook looks up the value of the rank on whose thread it is called.
    """

    def __init__(self, register: Callable[[], Sequence[RemovableHandle]]) -> None:
        self._register = register
        self._values: dict[int, T] = {}

    def current(self) -> T | None:
        """Return the value of the rank whose thread this is; None on a thread without one."""
        rank_thread = current_rank_thread()
        return None if rank_thread is None else self._values.get(rank_thread.rank)

    @contextmanager
    def active(self, rank_thread: RankThread, value: T) -> Iterator[None]:
        """Let *value* be that of *rank_thread*, which has the hooks, while the body runs on its thread."""
        self._values[rank_thread.rank] = value
        handles = self._register()
        try:
            yield
        finally:
            del self._values[rank_thread.rank]
            for handle in handles:
                handle.remove()
