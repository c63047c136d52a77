"""Streams and events of torch on a GPU in virtual time.

They stand for ``torch.cuda.Stream`` and ``torch.cuda.Event``, and for the same names of ``torch`` and
``torch.cpu``.  What is asked of them goes into the score of the rank; only `DeviceEvent.elapsed_time` and the
queries hold up the thread, until the times are known.

Priorities are kept and change nothing: kernels on different streams do not hold each other up.
"""

from __future__ import annotations

from typing import Any, Protocol

import torch


class Issuer(Protocol):
    """What streams and events ask for; `collectives.virtual.streams.gpu.Gpu` is it.

    Attributes:
        current: the stream on which the thread issues now.
        live_events: numbers of events that can still be waited for.
        graph: captures what is issued now, if one does.
    """

    current: DeviceStream
    live_events: set[int]
    graph: Any

    def record(self, stream: DeviceStream) -> int:
        """Return the number of a new event, recorded on *stream*."""

    def stream_wait(self, stream: DeviceStream, event: int) -> None:
        """Let what comes on *stream* begin after *event*."""

    def host_wait(self, what: DeviceEvent | DeviceStream, why: str) -> None:
        """Let the host wait."""

    def has_happened(self, event: int) -> bool:
        """Return whether *event* has happened at the host's time."""

    def time_of(self, event: int) -> int:
        """Return when *event* happens."""


class DeviceStream:
    """A stream of a GPU."""

    def __init__(
        self, gpu: Issuer, number: int, priority: int = 0, device: torch.device | None = None
    ) -> None:
        self.gpu = gpu
        self.number = self.stream_id = self.cuda_stream = number
        self.priority = priority
        self.device = device or torch.device("cuda", 0)
        self._entered: list[DeviceStream] = []

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceStream) and (self.gpu, self.number) == (other.gpu, other.number)

    def __hash__(self) -> int:
        return hash((id(self.gpu), self.number))

    def __enter__(self) -> DeviceStream:
        self._entered.append(self.gpu.current)
        self.gpu.current = self
        return self

    def __exit__(self, *raised: object) -> None:
        self.gpu.current = self._entered.pop()

    @property
    def device_index(self) -> int:
        """Number of the device."""
        return self.device.index or 0

    @property
    def native_handle(self) -> int:
        """What tells streams apart."""
        return self.number

    def wait_stream(self, stream: DeviceStream) -> None:
        """Let what comes on this stream begin after all that has been issued on *stream*."""
        if stream.number != self.number:
            self.wait_event(stream.record_event())

    def wait_event(self, event: DeviceEvent) -> None:
        """Let what comes on this stream begin after *event*."""
        event.wait(self)

    def record_event(self, event: DeviceEvent | None = None) -> DeviceEvent:
        """Return *event*, or a new one, recorded on this stream."""
        event = event or DeviceEvent(self.gpu)
        event.record(self)
        return event

    def synchronize(self) -> None:
        """Let the host wait for all that has been issued on this stream."""
        self.gpu.host_wait(self, "the stream")

    def query(self) -> bool:
        """Return whether all that has been issued on this stream is done at the host's time."""
        return self.record_event().query()

    def is_capturing(self) -> bool:
        """Return whether a graph is being captured."""
        return self.gpu.graph is not None


class DeviceEvent:
    """An event of a GPU; until it is recorded, nothing waits for it.

    Args:
        gpu: whose it is.
        enable_timing, blocking, interprocess, external: as torch has them; nothing follows from them.
    """

    def __init__(
        self, gpu: Issuer, enable_timing: bool = False, blocking: bool = False, **other: Any
    ) -> None:
        self.gpu = gpu
        self.enable_timing = enable_timing
        self.number: int | None = None

    def __del__(self) -> None:
        if self.number is not None:
            self.gpu.live_events.discard(self.number)

    @property
    def device(self) -> torch.device:
        """On which it is recorded."""
        return self.gpu.current.device

    @property
    def event_id(self) -> int:
        """What tells events apart."""
        return 0 if self.number is None else self.number

    def record(self, stream: DeviceStream | None = None) -> None:
        """Let this happen when all is done that has been issued on *stream*, or on the current one."""
        live = self.gpu.live_events
        if self.number is not None:
            live.discard(self.number)
        self.number = self.gpu.record(stream or self.gpu.current)
        live.add(self.number)

    def wait(self, stream: DeviceStream | None = None) -> None:
        """Let what comes on *stream*, or on the current one, begin after this."""
        if self.number is not None:
            self.gpu.stream_wait(stream or self.gpu.current, self.number)

    def synchronize(self) -> None:
        """Let the host wait for this."""
        self.gpu.host_wait(self, "an event")

    def query(self) -> bool:
        """Return whether this has happened at the host's time."""
        return self.number is None or self.gpu.has_happened(self.number)

    def elapsed_time(self, end_event: DeviceEvent) -> float:
        """Return the virtual milliseconds from this event to *end_event*.

        Raises:
            RuntimeError: one of them has not been recorded, or has not happened at the host's time.
        """
        if self.number is None or end_event.number is None:
            raise RuntimeError("both events must be recorded before the time between them is asked for")
        if not (self.query() and end_event.query()):
            raise RuntimeError("an event has not happened yet; synchronize it before its time is asked for")
        return (self.gpu.time_of(end_event.number) - self.gpu.time_of(self.number)) / 1e9
