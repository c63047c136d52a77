"""Scripts and runs that several tests of virtual runs have in common."""

import functools
import textwrap
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from collectives.virtual import Roofline, VirtualRun, run
from sim.cluster import Cluster, RankThread
from tests.given import switch

Work = Callable[[int], Any]


def script(tmp_path: Path, text: str) -> Path:
    """Write *text* as a script and return its path."""
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(text))
    return path


def all_reduce_once(rank: int) -> float:
    """Sum 400 floats of each rank, and return the first sum."""
    dist.init_process_group("gloo")
    tensor = torch.full((400,), float(rank))
    dist.all_reduce(tensor)
    return tensor[0].item()


def rank_thread() -> RankThread:
    """Return the rank whose thread this is."""
    current = Cluster.current()
    assert current is not None
    return current


def no_rank_is_left() -> bool:
    """Return whether the threads of all ranks have ended."""
    return not [thread.name for thread in threading.enumerate() if thread.name.startswith("rank ")]


def in_group(work: Work, num_ranks: int, backend: str = "gloo", **options) -> VirtualRun:
    """Run *work* on ranks of one process group, on a switch if *options* say no network."""

    @functools.wraps(work)  # whose module says whether ranks get devices
    def on_rank(rank: int) -> Any:
        dist.init_process_group(backend)
        return work(rank)

    return run(on_rank, num_ranks, **{"network": switch(num_ranks), **options})


def on_gpus(work, num_ranks: int, network="dgx-h100", **options) -> VirtualRun:
    """Run *work* on ranks that compute on GPUs."""
    return run(work, num_ranks, network, compute=Roofline(options.pop("device", "h100")), **options)


def check_folded(work: Work, num_ranks: int, **options) -> VirtualRun:
    """Check that *work* takes as long folded as with a thread for each rank; return the folded run."""
    folded, unfolded = (on_gpus(work, num_ranks, fold=fold, **options) for fold in (True, False))

    assert folded.times_ps == unfolded.times_ps
    assert folded.report.iterations == unfolded.report.iterations
    assert folded.report.lost == unfolded.report.lost
    assert folded.report.ranks == unfolded.report.ranks  # the memory of each, too
    assert unfolded.report.ranks_simulated == num_ranks
    return folded


def mistakes(work: Work, num_ranks: int = 2, backend: str = "gloo") -> str:
    """Return, line by line, what is noticed of *work* on ranks of one process group."""
    return "\n".join(in_group(work, num_ranks, backend).report.mistakes)


def train(
    model: nn.Module,
    batches: Iterable[Any],
    reduce: Callable[[nn.Module], object] | None = None,
    call: Callable[[Any], torch.Tensor] | None = None,
    **options,
) -> torch.optim.Optimizer:
    """Make a step of SGD for each batch.

    *reduce* averages gradients, *call* is how the model gets a batch, and *options* are the optimizer's.
    """
    optimizer = torch.optim.SGD(model.parameters(), **{"lr": 0.1, **options})
    for batch in batches:
        (call or model)(batch).square().mean().backward()
        if reduce is not None:
            reduce(model)
        optimizer.step()
        optimizer.zero_grad()
    return optimizer
