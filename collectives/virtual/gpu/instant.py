"""GPU of a rank without a model of it: what is asked of it is done at once, and events tell virtual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from collectives.virtual.streams.stream_api import DeviceEvent, DeviceStream
from sim.cluster import RankThread
from sim.hardware import Device


class InstantGpu:
    """A GPU on which nothing takes time; it issues what `collectives.virtual.streams.stream_api` asks for.

    An event's number is the moment at which it is recorded, as it has happened then.

    Args:
        rank_thread: the rank.

    Attributes:
        device: what is said of it.
        default: the default stream.
        current: the stream on which the thread issues now.
        live_events: moments of events that can still be waited for.
        at_host_wait: called when the host waits for the device.
        listeners: are told of what is issued, which is nothing.
        graph: captures what is computed now, if one does (`collectives.virtual.gpu.graphs`).
    """

    def __init__(self, rank_thread: RankThread) -> None:
        self.device = SAID
        self.live_events: set[int] = set()
        self.in_use = False
        self.at_host_wait: list[Callable[[], None]] = []
        self.listeners: list[Callable[[Any], None]] = []
        self.graph: Any = None
        self.default = self.current = DeviceStream(self, 0)
        self._rank_thread = rank_thread
        self._num_streams = 1

    def new_stream(self, priority: int = 0) -> DeviceStream:
        """Return a stream of its own number."""
        stream = DeviceStream(self, self._num_streams, priority)
        self._num_streams += 1
        return stream

    def record(self, stream: DeviceStream) -> int:
        """Return the rank's time, at which all is done."""
        return self._rank_thread.now_ps()

    def stream_wait(self, stream: DeviceStream, event: int) -> None:
        """Do nothing: the event has happened."""

    def host_wait(self, what: DeviceEvent | DeviceStream, why: str) -> None:
        """Do not wait: all is done."""
        for listener in self.at_host_wait:
            listener()

    def synchronize(self) -> None:
        """Do not wait: all is done."""
        for listener in self.at_host_wait:
            listener()

    def issue_deferred(self) -> None:
        """Do nothing: nothing is deferred."""

    def reissue(self, items: object, captured_on: DeviceStream) -> None:
        """Do nothing: a graph takes no time."""

    def has_happened(self, event: int) -> bool:
        """Return that it has."""
        return True

    def time_of(self, event: int) -> int:
        """Return the moment at which *event* was recorded."""
        return event


SAID = Device("virtual GPU", {}, 0, kind="gpu", memory_bytes=80 * 2**30, multiprocessors=132)
"""What scripts are told of a GPU without a model."""
