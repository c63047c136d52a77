"""Isolation of the ranks of one run: from each other, and of the process from all of them."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch

from collectives.virtual.isolation import per_rank, torchrun
from collectives.virtual.isolation.forks import only_workers
from collectives.virtual.isolation.process_groups import process_groups_on_rank_threads
from collectives.virtual.isolation.profiler import profilers_of_ranks
from sim.cluster import RankContext
from sim.topology import Topology

_MAY_SET_FLAGS = "__allow_nonbracketed_mutation_flag"
"""What ``torch.backends.disable_global_flags`` sets, which torch's own test helpers call."""


class Isolation:
    """What the ranks of one run find as if each were a process, and what is put back after them.

    Args:
        topology: of the run.
        streams: returns the standard output and error of a rank; None: all share the process's.
        ranks: those that have a thread.

    Attributes:
        contexts: what each rank has of its own.
    """

    def __init__(
        self, topology: Topology, streams: Callable[[int], per_rank.Streams] | None, ranks: Sequence[int]
    ) -> None:
        self._environment = per_rank.environment(ranks, lambda rank: torchrun.variables_of(rank, topology))
        self.contexts: list[RankContext] = [
            *per_rank.torch_globals(ranks),
            *per_rank.random_generators(ranks),
            self._environment,
        ]
        if streams is not None:
            self.contexts += per_rank.streams(ranks, streams)

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Replace what ranks may not share while the body runs, and put everything back at its end."""
        with process_restored(), process_groups_on_rank_threads(), only_workers(), profilers_of_ranks():
            try:
                yield
            finally:
                per_rank.forget_environment(self._environment)


@contextlib.contextmanager
def process_restored() -> Iterator[None]:
    """Put back what a script may change for the whole process and no context swaps."""
    cudnn, backends = torch.backends.cudnn, torch.backends.disable_global_flags.__globals__
    directory, num_threads = Path.cwd(), torch.get_num_threads()
    precision = torch.get_float32_matmul_precision()
    deterministic = _deterministic()
    flags = {name: getattr(cudnn, name) for name in ("benchmark", "deterministic", "enabled")}
    may_set = backends[_MAY_SET_FLAGS]
    torch.set_num_threads(1)  # the engine reduces pieces that are too small to share

    try:
        yield
    finally:
        os.chdir(directory)
        torch.set_num_threads(num_threads)
        torch.set_float32_matmul_precision(precision)
        if _deterministic() != deterministic:  # it imports torch's inductor, which takes a second
            torch.use_deterministic_algorithms(deterministic[0], warn_only=deterministic[1])
        backends[_MAY_SET_FLAGS] = True
        for name, value in flags.items():
            setattr(cudnn, name, value)
        backends[_MAY_SET_FLAGS] = may_set


def _deterministic() -> tuple[bool, bool]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
