"""Contexts in which another device or stream is current: ``torch.cuda.device`` and ``torch.cuda.stream``.

As torch's, they may be entered more than once, and say which device or stream theirs is, for which a device
is taken, too: ``torch.cuda.set_device(torch.cuda.device(1))``.
"""

from __future__ import annotations

from typing import Any

from collectives.virtual.gpu.accelerator import CudaDevices, index_of
from collectives.virtual.streams.stream_api import DeviceStream


class DeviceContext:
    """Makes a device the current one.

    Attributes:
        idx: number of the device; negative: it makes none the current one.

    Args:
        devices: of the rank.
        device: a number, a name, a device, a context of one, or an object that is on one.
    """

    def __init__(self, devices: CudaDevices, device: Any = None) -> None:
        index = index_of(device)
        self.idx = devices.index if index is None else index
        self._devices = devices
        self._entered: list[int] = []

    def __enter__(self) -> None:
        self._entered.append(self._devices.index)
        self._devices.set_device(self.idx)

    def __exit__(self, *raised: object) -> None:
        self._devices.index = self._entered.pop()


class StreamContext:
    """Makes *stream* the current one; None leaves it as it is."""

    def __init__(self, devices: CudaDevices, stream: DeviceStream | None) -> None:
        self.stream = stream
        self._devices = devices
        self._entered: list[DeviceStream] = []

    def __enter__(self) -> None:
        self._entered.append(self._devices.gpu.current)
        if self.stream is not None:
            self._devices.set_stream(self.stream)

    def __exit__(self, *raised: object) -> None:
        self._devices.gpu.current = self._entered.pop()
