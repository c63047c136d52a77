"""Live calibration: the processes that measure, on this machine or under torchrun, and what they find."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from testbed.errors import UsageError
from testbed.output.table import progress
from testbed.scripts.launch import RankExitError, launch, own_module

if TYPE_CHECKING:
    from testbed.truth.calibration.measurement import Measured

DEFAULT_RANKS = 4
DEFAULT_SECONDS = 75.0
LEAST_SECONDS = 5.0
TIMEOUT = 120.0
"""Seconds that a collective may take."""


@dataclass(frozen=True)
class LiveRequest:
    """What is to be measured.

    Attributes:
        ranks: how many; None: as torchrun has started, or else `DEFAULT_RANKS`.
        seconds: that it may take, about.
        port: where the ranks meet; None: one that is free.
        transport: ``gloo``, or ``shm``.
    """

    ranks: int | None
    seconds: float
    port: int | None
    transport: str = "gloo"

    @property
    def num_ranks(self) -> int:
        """How many ranks measure.

        Raises:
            UsageError: another number than torchrun has started, or too few for any traffic.
        """
        return num_ranks_of(self.ranks)

    def check(self) -> None:
        """Raise a `UsageError` if this cannot be measured."""
        if self.seconds < LEAST_SECONDS:
            raise UsageError(f"--seconds {self.seconds:g}: expected {LEAST_SECONDS:g} at least")
        if self.num_ranks < 2:
            raise UsageError("--ranks 1: one rank sends nothing; calibrate at least 2")


def joined() -> bool:
    """Return whether this process is one of those that torchrun has started."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def num_ranks_of(ranks: int | None) -> int:
    """Return how many ranks measure.

    Raises:
        UsageError: *ranks* contradicts torchrun.
    """
    world_size = int(os.environ["WORLD_SIZE"]) if joined() else None
    if world_size is not None and ranks not in (None, world_size):
        raise UsageError(f"--ranks {ranks}, but torchrun has started {world_size}; leave --ranks out")
    return world_size or ranks or DEFAULT_RANKS


def start_ranks(request: LiveRequest) -> None:
    """Run this very command once per rank, as torchrun would; rank 0 prints.

    Raises:
        LaunchError: a rank failed.
        SystemExit: a rank failed and has said why.
    """
    try:
        launch([*own_module("testbed"), *sys.argv[1:]], request.num_ranks, port=request.port)
    except RankExitError as error:
        if not error.said:
            raise
        raise SystemExit(error.exit_code) from None


def measured_here(request: LiveRequest) -> Measured | None:
    """Measure as one of several processes; return what was found on rank 0, None elsewhere."""
    import torch
    import torch.distributed as dist

    from testbed.scripts.loopback import listen_on_loopback
    from testbed.truth.calibration.measurement import measure

    listen_on_loopback()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=TIMEOUT))
    try:
        with progress(100, show=dist.get_rank() == 0) as advance:
            found = measure(
                seconds=request.seconds,
                transport="shm" if request.transport == "shm" else None,
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
