"""Transfers between host and device, and what the host waits for in them.

A transfer is a copy on the current stream, at the device's rate.  The host waits for it, unless its memory is
pinned and the script has said ``non_blocking``, as in ``at::native::copy_kernel_cuda``.

Source: torch, aten/src/ATen/native/cuda/Copy.cu.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_PINNED = "_is_in_pinned_memory"


def pinned(tensor: Tensor) -> Tensor:
    """Return a copy of *tensor*, of the CPU, in pinned memory."""
    copy = tensor.clone()
    copy._is_in_pinned_memory = True  # type: ignore[attr-defined]
    return copy


def mark_pinned(tensor: Tensor) -> Tensor:
    """Return *tensor*, which is in pinned memory."""
    tensor._is_in_pinned_memory = True  # type: ignore[attr-defined]
    return tensor


def is_pinned(tensor: Tensor) -> bool:
    """Return whether *tensor* is in pinned memory."""
    base = tensor if _PINNED in tensor.__dict__ else tensor._base
    return base is not None and bool(getattr(base, _PINNED, False))


def is_non_blocking(func: Any, args: Any, kwargs: Any) -> bool:
    """Return whether a call of ``_to_copy`` or ``copy_`` has said ``non_blocking``."""
    if func is torch.ops.aten.copy_.default and len(args) > 2:
        return bool(args[2])
    return bool(kwargs.get("non_blocking", False))


def on_host(func: Any, args: Any, kwargs: Any, carry_out: Callable[[Any, Any, Any], Any]) -> Any:
    """Return what an operation on tensors of the CPU gives, with pinned memory where it asks for that."""
    if kwargs.get("pin_memory"):
        return mark_pinned(carry_out(func, args, {**kwargs, "pin_memory": False}))
    if func is torch.ops.aten.is_pinned.default:
        return is_pinned(args[0])
    if func is torch.ops.aten._pin_memory.default:
        return pinned(args[0])
    return carry_out(func, args, kwargs)
