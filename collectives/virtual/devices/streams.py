"""CUDA streams and events of rank threads: everything is done at once, and events tell virtual time."""

from __future__ import annotations

from typing import Any

import torch

from sim.cluster import Cluster


class VirtualStream:
    """A CUDA stream on which everything is done at once."""

    def __init__(self, device: Any = None, priority: int = 0, **other: Any) -> None:
        self.device = torch.device("cpu")
        self.priority = priority
        self.cuda_stream = self.stream_id = 0

    def __enter__(self) -> VirtualStream:
        return self

    def __exit__(self, *raised: object) -> None:
        pass

    def wait_stream(self, stream: object) -> None:
        """Do nothing."""

    def wait_event(self, event: object) -> None:
        """Do nothing."""

    def synchronize(self) -> None:
        """Do nothing."""

    def query(self) -> bool:
        """Return that all is done."""
        return True

    def record_event(self, event: VirtualEvent | None = None) -> VirtualEvent:
        """Return *event*, or a new one, recorded now."""
        event = event or VirtualEvent()
        event.record(self)
        return event


class VirtualEvent:
    """A CUDA event, at a moment of virtual time."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._at_ps = 0

    def record(self, stream: object = None) -> None:
        """Note this rank's time."""
        rank_thread = Cluster.current()
        self._at_ps = 0 if rank_thread is None else rank_thread.now_ps()

    def elapsed_time(self, end: VirtualEvent) -> float:
        """Return the virtual milliseconds from this event to *end*."""
        return (end._at_ps - self._at_ps) / 1e9

    def wait(self, stream: object = None) -> None:
        """Do nothing."""

    def synchronize(self) -> None:
        """Do nothing."""

    def query(self) -> bool:
        """Return that all is done."""
        return True
