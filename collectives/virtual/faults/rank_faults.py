"""Faults that happen to a rank when it has finished so many iterations, on its own thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist

from collectives.virtual.faults.kinds import AbortedGroup, ClockJump, CrossedGroups, FailingCode, RankFault
from collectives.virtual.iterations import Iterations
from sim.cluster import Cluster, RankThread, Surroundings
from sim.units import SECOND


class InjectedError(RuntimeError):
    """What an `FailingCode` raises."""


class RankFaults:
    """The faults of the ranks of one run.

    Args:
        faults: what is to happen.

    Attributes:
        clock_jumps_ps: by rank, how much later its clock tells the time than it is.
    """

    def __init__(self, faults: Sequence[RankFault]) -> None:
        self._faults = tuple(faults)
        self.clock_jumps_ps: dict[int, int] = {}

    @staticmethod
    def clock_jump_ps(cluster: Surroundings, rank: int) -> int:
        """Return how much later the clock of *rank* tells the time than it is."""
        faults = cluster.shared.get(RankFaults)
        return 0 if faults is None else int(faults.clock_jumps_ps.get(rank, 0))

    def attached(self, cluster: Cluster, iterations: Iterations) -> RankFaults:
        """Let the faults happen in a run on *cluster*; return this."""

        def ended(rank_thread: RankThread, finished: int) -> None:
            for fault in self._faults:
                if fault.iteration == finished:
                    self._happen(fault, rank_thread.rank, cluster.topology.num_ranks)

        iterations.on_end(ended)
        return self

    def _happen(self, fault: RankFault, rank: int, num_ranks: int) -> None:
        if isinstance(fault, CrossedGroups):
            _cross_groups(rank == fault.rank, num_ranks)
        elif fault.rank == rank:
            match fault:
                case FailingCode(where="rank"):
                    raise InjectedError(str(fault))
                case FailingCode():
                    _raise_in_next_backward(fault)
                case AbortedGroup():
                    dist.distributed_c10d._abort_process_group()
                case ClockJump(by=by):
                    self.clock_jumps_ps[rank] = self.clock_jumps_ps.get(rank, 0) + round(by * SECOND)


def _cross_groups(is_crossed: bool, num_ranks: int) -> None:
    """Make two groups of all ranks, and reduce in each; a rank that is crossed, the second one first."""
    if not dist.is_initialized():
        return
    sizes = (2, 1) if is_crossed else (1, 2)
    groups = {size: dist.new_group(list(range(num_ranks))) for size in sizes}
    for size in sizes:
        dist.all_reduce(torch.zeros(size), group=groups[size])


def _raise_in_next_backward(fault: FailingCode) -> None:
    """Raise when the next backward pass on this thread begins to send gradients back."""
    removed: list[Any] = []

    def raises(module: Any, *_: Any) -> None:
        for hook in removed:
            hook.remove()
        raise InjectedError(str(fault))

    def called(module: torch.nn.Module, args: Any, output: Any) -> None:
        tensors = [own for own in _tensors(output) if own.requires_grad]
        if tensors and Cluster.current() is mine:
            handle.remove()
            removed.append(tensors[0].register_hook(raises))

    mine = Cluster.current()
    handle = torch.nn.modules.module.register_module_forward_hook(called)


def _tensors(output: Any) -> list[torch.Tensor]:
    if isinstance(output, torch.Tensor):
        return [output]
    parts = (
        output.values() if isinstance(output, dict) else output if isinstance(output, list | tuple) else ()
    )
    return [tensor for part in parts for tensor in _tensors(part)]
