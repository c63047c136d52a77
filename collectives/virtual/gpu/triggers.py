"""Triggers: functions and classes of ``torch.cuda`` by which a script brings virtual devices into a run.

Until a rank calls one, nothing of CUDA is in place, and nothing is paid for.  Code of torch itself asks what
there really is.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from collectives.virtual.gpu.accelerator import CudaDevices, is_torch
from collectives.virtual.gpu.functions import ACCELERATOR, CUDA, NVTX
from collectives.virtual.isolation.patching import Replacement
from sim.cluster import Cluster


def triggers(bring: Callable[[], None]) -> Iterator[Replacement]:
    """Yield what stands for torch's own, and calls *bring* before the call goes to what is there then."""
    for module, functions in (
        (torch.cuda, CUDA),
        (torch.accelerator, ACCELERATOR),
        (torch.cuda.nvtx, NVTX),
    ):
        for name in functions.keys() & vars(module).keys():
            yield module, name, _trigger(module, name, bring)
    for module in (torch.cuda, torch):
        for name in ("Stream", "Event"):
            yield module, name, _trigger(module, name, bring)


def _trigger(module: Any, name: str, bring: Callable[[], None]) -> Any:
    original = getattr(module, name)

    def called(frame: Any, *args: Any, **options: Any) -> Any:
        if Cluster.current() is None or CudaDevices.here() is not None or is_torch(frame):
            return original(*args, **options)
        bring()
        return getattr(module, name)(*args, **options)

    if not inspect.isclass(original):
        return functools.wraps(original)(lambda *args, **options: called(sys._getframe(1), *args, **options))

    class Kind(type):
        def __call__(cls, *args: Any, **options: Any) -> Any:
            return called(sys._getframe(1), *args, **options)

        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, original)

        def __getattr__(cls, name: str) -> Any:
            return getattr(original, name)

    return Kind(original.__name__, (), {"__module__": original.__module__, "__doc__": original.__doc__})
