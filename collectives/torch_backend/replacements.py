"""Replacements in torch, where it expects what a process group in Python cannot fulfil.

- ``FP16_COMPRESS`` in C++ looks into the future of an all-reduce for a list of tensors of C++, and a
  future made in Python holds a Python object.  The hook of the same name in Python does the same.
- The hooks that compress to bfloat16 are checked for CUDA and NCCL.  Ours add bfloat16 anywhere.
- A `collectives.torch_backend.work.CollectiveWork` that Python hands to C++, which keeps its own half alone
  and would wait for ever: a reducer keeps the last of the forward pass, ``wait_tensor`` one for each tensor.
- ``monitored_barrier``, which torch has for groups of no other name than ``gloo``.
- A future that torch makes of ours in C++, as ``torch.futures.wait_all`` does, does not know that a
  wait must drive what it waits for.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook
from torch.nn.parallel import DistributedDataParallel

from collectives.torch_backend.work import kept, settle_all

_c10d: Any = torch._C._distributed_c10d
_FP16_COMPRESS: Any = dist.BuiltinCommHookType.FP16_COMPRESS  # type: ignore[attr-defined]
_forward_pass_works: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()


def replacements(is_ours: Callable[[Any], bool]) -> list[tuple[Any, str, Any]]:
    """Return owners, names of their attributes, and what stands there.

    Process groups of which *is_ours* is not true see no difference.
    """
    register: Any = DistributedDataParallel._register_builtin_comm_hook
    check: Any = DistributedDataParallel._check_comm_hook
    wait = torch._C.Future.wait
    set_forward_pass_work = _c10d.Reducer._set_forward_pass_work_handle
    register_work = _c10d._register_work
    monitored = dist.monitored_barrier

    def register_builtin_hook(self: Any, kind: Any) -> None:
        if is_ours(self.process_group) and kind == _FP16_COMPRESS:
            self.register_comm_hook(self.process_group, fp16_compress_hook)
        else:
            register(self, kind)

    def check_comm_hook(self: Any, hook: Any) -> None:
        needs_nccl = getattr(hook, "__name__", None) in ("bf16_compress_hook", "bf16_compress_wrapper_hook")
        if not (needs_nccl and is_ours(self.process_group)):
            check(self, hook)

    def driving_wait(self: Any) -> Any:
        if not self.done():
            settle_all()
        return wait(self)

    def keep_forward_pass_work(self: Any, work: Any, *rest: Any) -> None:
        _forward_pass_works[self] = work  # as long as C++ keeps it, which asks it for its future, too
        set_forward_pass_work(self, work, *rest)

    def register_kept_work(tensor: torch.Tensor, work: Any) -> Any:
        return register_work(tensor, kept(work))

    @functools.wraps(monitored)
    def monitored_barrier(group: Any = None, timeout: Any = None, wait_all_ranks: bool = False) -> None:
        chosen: Any = dist.group.WORLD if group is None else group
        if not is_ours(chosen):
            monitored(group, timeout, wait_all_ranks)
            return
        limit = timedelta(seconds=timeout) if isinstance(timeout, int | float) else timeout
        chosen.monitored_barrier(limit, wait_all_ranks)

    register_builtin_hook.is_replacement = True  # type: ignore[attr-defined]
    return [
        (DistributedDataParallel, "_register_builtin_comm_hook", register_builtin_hook),
        (DistributedDataParallel, "_check_comm_hook", check_comm_hook),
        (torch._C.Future, "wait", driving_wait),
        (_c10d.Reducer, "_set_forward_pass_work_handle", keep_forward_pass_work),
        (_c10d, "_register_work", register_kept_work),
        (dist, "monitored_barrier", monitored_barrier),
    ]


def replace_for_good(is_ours: Callable[[Any], bool]) -> None:
    """Replace it until the process ends, unless it is."""
    if not hasattr(DistributedDataParallel._register_builtin_comm_hook, "is_replacement"):
        for owner, name, value in replacements(is_ours):
            setattr(owner, name, value)
