"""Build of torch as scripts of ranks with virtual CUDA devices find it: one with CUDA and NCCL.

``torch.version.cuda`` and ``torch.cuda.nccl.version()`` decide in scripts whether they train in bfloat16.
Torch itself, and this project, go on to find the build that there is.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch
import torch.cuda.nccl

from collectives.virtual.gpu.accelerator import CudaDevices, is_torch
from collectives.virtual.isolation.patching import Replacement

CUDA = "12.8"
NCCL = (2, 27, 5)


def replacements() -> Iterator[Replacement]:
    """Yield what stands for what torch says of its build."""
    yield torch, "version", _Version(torch.version)
    yield torch.cuda.nccl, "version", _nccl_version


class _Version(ModuleType):
    """What stands for ``torch.version``."""

    def __init__(self, original: ModuleType) -> None:
        super().__init__(original.__name__, original.__doc__)
        self._original = original

    @property
    def cuda(self) -> str | None:
        """The version of CUDA, or None where torch asks, or a rank without devices."""
        return CUDA if _asks_a_script(sys._getframe(1)) else self._original.cuda

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


_real_version: Any = torch.cuda.nccl.version


@functools.wraps(_real_version)
def _nccl_version() -> Any:
    return NCCL if _asks_a_script(sys._getframe(1)) else _real_version()


def _asks_a_script(frame: Any) -> bool:
    return not is_torch(frame) and CudaDevices.here() is not None
