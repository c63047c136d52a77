"""Live calibration: the processes that measure, on this machine or under torchrun, and what they find."""

from __future__ import annotations

import os
import platform
import sys
from datetime import timedelta
from typing import TYPE_CHECKING

from testbed.errors import UsageError
from testbed.output.table import progress
from testbed.scripts.launch import RankExitError, launch

if TYPE_CHECKING:
    from testbed.truth.calibration.measurement import Measured

DEFAULT_RANKS = 4
DEFAULT_SECONDS = 75.0
LEAST_SECONDS = 5.0


def joined() -> bool:
    """Return whether this process is one of those that torchrun has started."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def num_ranks_of(ranks: int | None) -> int:
    """Return how many ranks measure.

    Raises:
        UsageError: *ranks* contradicts torchrun, or is too small for any traffic.
    """
    world_size = int(os.environ["WORLD_SIZE"]) if joined() else None
    if world_size is not None and ranks not in (None, world_size):
        raise UsageError(f"--ranks {ranks}, but torchrun has started {world_size}; leave --ranks out")
    num_ranks = world_size or ranks or DEFAULT_RANKS
    if num_ranks < 2:
        raise UsageError("--ranks 1: one rank sends nothing; calibrate at least 2")
    return num_ranks


def start_ranks(num_ranks: int, port: int | None) -> None:
    """Run this very command once per rank, as torchrun would; rank 0 prints.

    Raises:
        LaunchError: a rank failed.
        SystemExit: a rank failed and has said why.
    """
    try:
        launch([sys.executable, "-m", "testbed", *sys.argv[1:]], num_ranks, port=port)
    except RankExitError as error:
        if not error.said:
            raise
        raise SystemExit(error.exit_code) from None


def measured_here(seconds: float, timeout: float) -> Measured | None:
    """Measure as one of several processes; return what was found on rank 0, None elsewhere."""
    import torch
    import torch.distributed as dist

    from testbed.truth.calibration.measurement import measure

    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=timeout))
    try:
        with progress(100, show=dist.get_rank() == 0) as advance:
            found = measure(
                seconds=seconds,
                ranks_per_node=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
                told=lambda what, part: advance(what, completed=round(100 * part)),
            )
        return found if dist.get_rank() == 0 else None
    finally:
        dist.destroy_process_group()


def described_here(num_ranks: int) -> str:
    """Return in words what was measured."""
    ranks_per_node = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    if ranks_per_node >= num_ranks:
        return f"{num_ranks} processes of {platform.node() or 'one machine'}"
    return f"{-(-num_ranks // ranks_per_node)} nodes of {ranks_per_node} processes"
