"""Normalization layers in 16 bits, carried out on the CPU in float32 where it does not take their types.

Kernels of CUDA keep statistics of activations in 16 bits in float32, and take both, as they take running
statistics in float32 beside weights in 16 bits; those of the CPU refuse them together.  What is computed is
rounded to the types of the device's results at the end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

_aten = torch.ops.aten
_MIXED = (
    _aten._native_batch_norm_legit.default,
    _aten.native_batch_norm.default,
    _aten.native_layer_norm_backward.default,
    _aten.native_group_norm_backward.default,
    _aten.native_batch_norm_backward.default,
    _aten._fused_rms_norm_backward.default,
)


def in_one_type(func: Any, args: Any, kwargs: Any) -> Any:
    """Return what *func* gives for arguments of one floating point type; NotImplemented if CUDA needs one.

    Args:
        func: an overload.
        args: tensors of the CPU, and others.
        kwargs: of the call, too.

    Raises:
        RuntimeError: the CPU refuses the call whatever its types are.
    """
    if func not in _MIXED:
        return NotImplemented
    dtypes = {tensor.dtype for tensor in _tensors((args, kwargs))}
    exact = torch.float64 if torch.float64 in dtypes else torch.float32
    return func(*_in(exact, args), **_in(exact, kwargs))


def _tensors(values: Any) -> list[Tensor]:
    """Return the tensors among *values*, and in lists among them."""
    if isinstance(values, Tensor):
        return [values]
    if isinstance(values, Mapping):
        values = values.values()
    elif not isinstance(values, (list, tuple)):
        return []
    return [tensor for value in values for tensor in _tensors(value)]


def _in(dtype: torch.dtype, values: Any) -> Any:
    """Return *values* with floating point tensors as ones of *dtype*."""
    if isinstance(values, Tensor):
        return values.to(dtype) if values.is_floating_point() else values
    if isinstance(values, Mapping):
        return {name: _in(dtype, value) for name, value in values.items()}
    if type(values) in (list, tuple):
        return type(values)(_in(dtype, value) for value in values)
    return values
