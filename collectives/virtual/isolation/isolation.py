"""Isolation of the ranks of one run: from each other, and of the process from all of them."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from collectives.garbage import collected_seldom
from collectives.virtual.isolation import per_rank, shardings
from collectives.virtual.isolation.once_per_process import OncePerProcess, loggers_of_ranks
from collectives.virtual.isolation.own_operators import OwnOperators
from collectives.virtual.isolation.own_threads import threads_of_ranks
from collectives.virtual.isolation.patching import replaced
from collectives.virtual.isolation.process_groups import process_groups_on_rank_threads
from collectives.virtual.isolation.profiler import profilers_of_ranks
from collectives.virtual.isolation.refusals import only_workers
from sim.cluster import RankContext
from sim.topology import Topology

_MAY_SET_FLAGS = "__allow_nonbracketed_mutation_flag"
"""What ``torch.backends.disable_global_flags`` sets, which torch's own test helpers call."""
_CLASSES_MADE = (
    ("torch.distributed.fsdp._fully_shard._fully_shard", "cls_to_fsdp_cls"),
    ("torch.distributed._composable.replicate_with_fsdp", "cls_to_replicate_cls"),
)
"""Where torch keeps, for the life of the process, a class for each class of module that it has sharded."""


class Isolation:
    """What the ranks of one run find as if each were a process, and what is put back after them."""

    def __init__(
        self, topology: Topology, streams: Callable[[int], per_rank.Streams] | None, ranks: Sequence[int]
    ) -> None:
        self._environment = per_rank.environment(ranks, lambda rank: per_rank.variables_of(rank, topology))
        self.contexts: list[RankContext] = [
            OncePerProcess(),
            *per_rank.torch_globals(ranks),
            *per_rank.random_generators(ranks),
            self._environment,
        ]
        if streams is not None:
            self.contexts += per_rank.streams(ranks, streams)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Replace what ranks may not share while the body runs, and put everything back at its end."""
        with (
            process_restored(),
            collected_seldom(),
            process_groups_on_rank_threads(),
            only_workers(),
            loggers_of_ranks(),
            profilers_of_ranks(),
            threads_of_ranks(),
            OwnOperators().registered(),
            replaced(shardings.replacements()),
        ):
            try:
                yield
            finally:
                per_rank.forget_environment(self._environment)


@contextlib.contextmanager
def process_restored() -> Iterator[None]:
    """Put back what a script may change for the whole process and no context swaps."""
    backends = torch.backends.disable_global_flags.__globals__
    directory, num_threads, depth = Path.cwd(), torch.get_num_threads(), sys.getrecursionlimit()
    may_set = backends[_MAY_SET_FLAGS]
    classes_before = {place: set(_classes_made(*place)) for place in _CLASSES_MADE}
    torch.set_num_threads(1)  # the engine reduces pieces that are too small to share

    try:
        yield
    finally:
        os.chdir(directory)
        torch.set_num_threads(num_threads)
        sys.setrecursionlimit(depth)
        backends[_MAY_SET_FLAGS] = may_set
        for place, before in classes_before.items():
            _forget_classes(_classes_made(*place), before)
        redistribution: Any = sys.modules.get("torch.distributed.tensor._redistribute")
        if hasattr(redistribution, "clear_redistribute_planner_cache"):
            redistribution.clear_redistribute_planner_cache()  # by device meshes, whose groups hold the run


def _classes_made(module: str, name: str) -> dict[type, type]:
    return getattr(sys.modules.get(module), name, {})


def _forget_classes(made: dict[type, type], before: set[type]) -> None:
    """Remove what ranks have added: a script's class keeps its module alive, and all that it has made."""
    for added in made.keys() - before:
        del made[added]
