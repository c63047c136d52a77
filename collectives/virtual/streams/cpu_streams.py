"""Streams of ``torch.cpu`` on GPUs in virtual time, and optimizers' lists of tensors.

Where the tensors of the CPU stand for those of a GPU, the streams and events of ``torch.cpu``, which are
empty stand-ins in torch, are the device's.  So code that asks a tensor's device for its streams, as FSDP2
does, overlaps what it would on that device; and optimizers take the lists of tensors (``foreach``) that they
take on CUDA.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch.optim import optimizer

from collectives.virtual.isolation.patching import Replacement, class_in_place, on_ranks, replaced
from collectives.virtual.streams.gpu import current_gpu
from collectives.virtual.streams.stream_api import DeviceEvent, DeviceStream

_on_gpus = functools.partial(on_ranks, here=current_gpu)


def replacements() -> Iterator[Replacement]:
    """Yield what stands in ``torch.cpu`` while ranks are on GPUs; other threads find what was there."""
    cpu = torch.cpu
    yield (
        cpu,
        "Stream",
        _class_on_gpus(cpu.Stream, lambda gpu, priority=-1: gpu.new_stream(priority), DeviceStream),
    )
    yield (
        cpu,
        "Event",
        _class_on_gpus(cpu.Event, lambda gpu, **options: DeviceEvent(gpu, **options), DeviceEvent),
    )
    yield cpu, "current_stream", _on_gpus(cpu.current_stream, lambda gpu, device=None: gpu.current)
    yield cpu, "synchronize", _on_gpus(cpu.synchronize, lambda gpu, device=None: gpu.synchronize())
    for name in ("stream", "StreamContext"):
        yield cpu, name, _on_gpus(getattr(cpu, name), lambda gpu, stream: stream or contextlib.nullcontext())
    name = "_get_foreach_kernels_supported_devices"
    devices = getattr(optimizer, name)
    yield optimizer, name, _on_gpus(devices, lambda gpu: [*devices(), "cpu"])


def streams_of_torch() -> AbstractContextManager[None]:
    """Return a context in which the streams of ``torch.cpu`` are those of a rank's GPU, if it has one."""
    return replaced(replacements())


def _class_on_gpus(original: Any, own: Callable[..., Any], made: type) -> type:
    """Return a class that stands for *original*; on a GPU, its instances are of the class *made*."""
    make = _on_gpus(original, own)
    return class_in_place(original, lambda frame, *args, **options: make(*args, **options), made)
