"""Virtual accelerators of a rank: how many there are, which one is current, and what is said of them.

The CPU computes for them.  No device memory is modelled, so memory figures are 0.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch

from collectives.virtual.devices.streams import VirtualStream
from collectives.virtual.notices import Notices
from sim.cluster import RankThread

NAME = "virtual GPU"
CAPABILITY = (9, 0)
MEMORY_BYTES = 80 * 2**30
"""What a device is said to have; nothing of it is ever in use."""

NO_MEMORY = "no device memory is modelled: figures of torch.cuda about it are 0"


class Accelerator:
    """The devices of one rank, as it sees them."""

    def __init__(self, rank_thread: RankThread) -> None:
        self.index = 0
        topology = rank_thread.cluster.topology
        self.num_devices = min(topology.ranks_per_node, topology.num_ranks)
        self.stream = VirtualStream()
        self._notices = Notices.of(rank_thread.cluster)

    def set_device(self, device: Any = None) -> None:
        """Make *device* the current one; the CPU, which cuda is mapped to, leaves it as it is."""
        index = device if isinstance(device, int) else torch.device(device).index
        if isinstance(device, str) and ":" in device:
            index = int(device.rpartition(":")[2])
        if index is not None and index >= self.num_devices:
            few = f"a node of this network has devices 0 to {self.num_devices - 1}; set_device is given"
            self._notices.add(few, str(index))
        if index is not None and index >= 0:
            self.index = index

    def nothing(self, *args: Any, **options: Any) -> None:
        """Do nothing."""

    def memory(self, *args: Any, **options: Any) -> int:
        """Return 0, and say why."""
        self._notices.add(NO_MEMORY)
        return 0

    def memory_info(self, *args: Any, **options: Any) -> tuple[int, int]:
        """Return free and total memory."""
        self._notices.add(NO_MEMORY)
        return MEMORY_BYTES, MEMORY_BYTES

    def memory_statistics(self, *args: Any, **options: Any) -> dict[str, Any]:
        """Return none."""
        self._notices.add(NO_MEMORY)
        return {}

    def set_stream(self, stream: VirtualStream) -> None:
        """Make *stream* the current one."""
        self.stream = stream

    @contextlib.contextmanager
    def on_stream(self, stream: VirtualStream | None) -> Iterator[None]:
        """Make *stream* the current one while the body runs."""
        before, self.stream = self.stream, self.stream if stream is None else stream
        try:
            yield
        finally:
            self.stream = before

    @contextlib.contextmanager
    def on_device(self, device: Any = None) -> Iterator[None]:
        """Make *device* the current one while the body runs."""
        before = self.index
        if device is not None and not isinstance(device, torch.Tensor):
            self.set_device(device)
        try:
            yield
        finally:
            self.index = before

    def seed(self, seed: int) -> None:
        """Seed the generator of the CPU, which draws what the device would."""
        torch.default_generator.manual_seed(int(seed))

    def properties(self, device: Any = None) -> SimpleNamespace:
        """Return what is said of a device."""
        major, minor = CAPABILITY
        return SimpleNamespace(
            name=NAME, major=major, minor=minor, total_memory=MEMORY_BYTES, multi_processor_count=132
        )
