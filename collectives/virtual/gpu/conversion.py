"""Conversion of modules: parameters stay the same objects when a module goes to a device, or comes back.

On a real device ``Module._apply`` sets the data of a parameter, so that an optimizer that was made before
goes on updating it.  It does not do so with FakeTensors, but may swap two tensors, which keeps the object as
well.  Others may hold weakly to a parameter, which torch's swap refuses; here they go on holding it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.__future__
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from collectives.virtual.gpu.accelerator import CudaDevices
from collectives.virtual.isolation.patching import Replacement

_apply: Any = nn.Module._apply
_OF_FAKE_TENSORS = (
    "_fake_device",
    "_is_param",
    "constant",
    "dispatch_keys",
    "fake_mode",
    "pytype",
    "real_tensor",
)
_HOOKS = "_backward_hooks", "_post_accumulate_grad_hooks"
_INTERNAL = frozenset({*_OF_FAKE_TENSORS, "_kind", "_value_and_cell", "_is_in_pinned_memory"})


def replacements() -> Iterator[Replacement]:
    """Yield what stands in torch for modules that are converted."""
    yield torch.utils, "swap_tensors", _swapping(torch.utils.swap_tensors)
    asked = torch.__future__.get_swap_module_params_on_conversion
    yield torch.__future__, "get_swap_module_params_on_conversion", _swapped_by_modules(asked)


def _swapped_by_modules(asked: Callable[[], bool]) -> Callable[[], bool]:
    def is_swapped() -> bool:
        is_converted = sys._getframe(1).f_code is _apply.__code__
        return asked() or (is_converted and CudaDevices.here() is not None)

    return is_swapped


def _swapping(swap: Callable[[Tensor, Tensor], None]) -> Callable[[Tensor, Tensor], None]:
    def swap_tensors(first: Tensor, second: Tensor) -> None:
        if isinstance(first, FakeTensor) or isinstance(second, FakeTensor):
            _swap_virtual(first, second)
        elif (
            CudaDevices.here() is None
            or torch.__future__.get_swap_module_params_on_conversion()
            or not _is_plain(first, second)
        ):
            swap(first, second)
        else:
            first.data = second.data

    return swap_tensors


def _is_plain(first: Tensor, second: Tensor) -> bool:
    """Return whether torch, left alone, would set the data of *first*."""
    are_wrappers = any(is_traceable_wrapper_subclass(tensor) for tensor in (first, second))
    return not are_wrappers and torch._has_compatible_shallow_copy_type(first, second)


def _swap_virtual(first: Tensor, second: Tensor) -> None:
    """Swap two tensors, one of which at least is virtual; what is the user's on *first* stays there.

    Where *second* is only another view of *first*, as nothing had to be converted, nothing is swapped: what
    autograd keeps for *first*, such as an accumulator of gradients that others watch, stays as well.
    """
    if _is_same(first, second):
        return
    written, hooks = _written_on(first), [getattr(first, name) for name in _HOOKS]
    first.__class__, second.__class__ = second.__class__, first.__class__
    first.__dict__, second.__dict__ = second.__dict__, first.__dict__
    torch._C._swap_tensor_impl(first, second)
    first.__dict__.update(written)
    for name, kept in zip(_HOOKS, hooks, strict=True):
        if kept is not None:
            setattr(first, name, kept)


def _is_same(first: Tensor, second: Tensor) -> bool:
    """Return whether both are virtual, and the same view of the same memory."""
    if not (isinstance(first, FakeTensor) and isinstance(second, FakeTensor)):
        return False
    return (
        first.untyped_storage()._cdata == second.untyped_storage()._cdata
        and first.dtype == second.dtype
        and first.shape == second.shape
        and first.stride() == second.stride()
        and first.storage_offset() == second.storage_offset()
        and first.requires_grad == second.requires_grad
    )


def _written_on(tensor: Tensor) -> dict[str, Any]:
    """Return the attributes of a tensor that are neither torch's nor ours."""
    return {
        name: value for name, value in vars(tensor).items() if name not in _INTERNAL and "_memo" not in name
    }
