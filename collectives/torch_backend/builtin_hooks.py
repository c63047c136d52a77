"""The communication hooks that torch has in C++, done by their equals in Python where they cannot be.

``FP16_COMPRESS`` in C++ looks into the future of an all-reduce for a list of tensors of C++, and a
future made in Python holds a Python object.  The hook of the same name in Python does the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

_NAME = "_register_builtin_comm_hook"
_FP16_COMPRESS: Any = dist.BuiltinCommHookType.FP16_COMPRESS  # type: ignore[attr-defined]


def replace_builtin_hooks(is_ours: Callable[[Any], bool]) -> None:
    """Let torch's DDP over process groups that are ours register the hook in Python instead."""
    register: Any = getattr(DistributedDataParallel, _NAME)
    if hasattr(register, "replaced"):
        return

    def register_builtin_hook(self: Any, kind: Any) -> None:
        if is_ours(self.process_group) and kind == _FP16_COMPRESS:
            self.register_comm_hook(self.process_group, fp16_compress_hook)
        else:
            register(self, kind)

    register_builtin_hook.replaced = register  # type: ignore[attr-defined]
    setattr(DistributedDataParallel, _NAME, register_builtin_hook)


@contextlib.contextmanager
def builtin_hooks_replaced(is_ours: Callable[[Any], bool]) -> Iterator[None]:
    """Do so for a while."""
    before = getattr(DistributedDataParallel, _NAME)
    replace_builtin_hooks(is_ours)
    try:
        yield
    finally:
        setattr(DistributedDataParallel, _NAME, before)
