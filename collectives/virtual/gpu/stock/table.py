"""Table of what is replaced in torch's stock systems while ranks have virtual CUDA tensors.

On other threads each is torch's own.
"""

from __future__ import annotations

from collections.abc import Iterator

from collectives.virtual.gpu.stock import cuda_only, ddp, dtensor, fully_sharded
from collectives.virtual.isolation.patching import Replacement


def replacements() -> Iterator[Replacement]:
    """Yield what stands for torch's own while ranks run."""
    for system in (cuda_only, ddp, dtensor, fully_sharded):
        yield from system.replacements()
