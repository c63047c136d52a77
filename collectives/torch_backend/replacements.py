"""What of torch is replaced because a process group in Python cannot fulfil what it expects.

- ``FP16_COMPRESS`` in C++ looks into the future of an all-reduce for a list of tensors of C++, and a
  future made in Python holds a Python object.  The hook of the same name in Python does the same.
- A future that torch makes of ours in C++, as ``torch.futures.wait_all`` does, does not know that a
  wait must drive what it waits for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from collectives.torch_backend.work import settle_all

_FP16_COMPRESS: Any = dist.BuiltinCommHookType.FP16_COMPRESS  # type: ignore[attr-defined]
_REPLACED = (
    (DistributedDataParallel, "_register_builtin_comm_hook"),
    (torch._C.Future, "wait"),
)


def replace(is_ours: Callable[[Any], bool]) -> None:
    """Replace it for good, unless it is; process groups that are not ours see no difference."""
    register, wait = (getattr(owner, name) for owner, name in _REPLACED)
    if hasattr(register, "replaced"):
        return

    def register_builtin_hook(self: Any, kind: Any) -> None:
        if is_ours(self.process_group) and kind == _FP16_COMPRESS:
            self.register_comm_hook(self.process_group, fp16_compress_hook)
        else:
            register(self, kind)

    def driving_wait(self: Any) -> Any:
        if not self.done():
            settle_all()
        return wait(self)

    register_builtin_hook.replaced = register  # type: ignore[attr-defined]
    for (owner, name), replacement in zip(_REPLACED, (register_builtin_hook, driving_wait), strict=True):
        setattr(owner, name, replacement)


@contextlib.contextmanager
def replaced(is_ours: Callable[[Any], bool]) -> Iterator[None]:
    """Replace it for a while."""
    before = [getattr(owner, name) for owner, name in _REPLACED]
    replace(is_ours)
    try:
        yield
    finally:
        for (owner, name), original in zip(_REPLACED, before, strict=True):
            setattr(owner, name, original)
