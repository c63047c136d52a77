"""Live calibration: the processes that measure, on this machine or under torchrun, and what they find."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from testbed.errors import UsageError
from testbed.output.table import progress
from testbed.scripts.launch import ask_ranks, joined, joined_ranks, ranks_here

if TYPE_CHECKING:
    from testbed.calibration.live.measurement import Measured

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
        return joined_ranks(self.ranks) or self.ranks or DEFAULT_RANKS

    def check(self) -> None:
        """Raise a `UsageError` if this cannot be measured."""
        if self.seconds < LEAST_SECONDS:
            raise UsageError(f"--seconds {self.seconds:g}: expected {LEAST_SECONDS:g} at least")
        if self.num_ranks < 2:
            raise UsageError("--ranks 1: one rank sends nothing; calibrate at least 2")


def measured(request: LiveRequest) -> Measured | None:
    """Measure between processes of this machine, or as one of those that torchrun has started.

    Returns:
        What was found; None on the ranks of torchrun that are not the first.

    Raises:
        LaunchError: a rank failed.
        SystemExit: a rank failed and has said why.
    """
    if joined():
        return _measured_here(request)
    return ask_ranks(_measured_here, request, request.num_ranks, port=request.port)


def _measured_here(request: LiveRequest) -> Measured | None:
    """Measure as one of several processes; return what was found on rank 0, None elsewhere."""
    import torch
    import torch.distributed as dist

    from testbed.calibration.live.measurement import measure
    from testbed.scripts.loopback import listen_on_loopback

    listen_on_loopback()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=TIMEOUT))
    try:
        with progress(100, show=dist.get_rank() == 0) as advance:
            found = measure(
                seconds=request.seconds,
                transport="shm" if request.transport == "shm" else None,
                ranks_per_node=ranks_here(dist.get_world_size()),
                advance=advance,
            )
        return found if dist.get_rank() == 0 else None
    finally:
        dist.destroy_process_group()


def described_here(num_ranks: int) -> str:
    """Return in words what was measured."""
    ranks_per_node = ranks_here(num_ranks)
    if ranks_per_node >= num_ranks:
        return f"{num_ranks} processes of {platform.node() or 'one machine'}"
    return f"{-(-num_ranks // ranks_per_node)} nodes of {ranks_per_node} processes"
