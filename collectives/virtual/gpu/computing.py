"""Values of results: the same operation on tensors of the CPU, where all that it reads is known."""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from collectives.errors import NotSupportedError
from collectives.virtual.computation.operations import Operation, first_tensor, operation_of, tensors_in
from collectives.virtual.gpu import data_dependent
from collectives.virtual.gpu.accelerator import CudaDevices, known_integers
from collectives.virtual.gpu.cpu_kernels import on_cpu
from collectives.virtual.gpu.shapes import forget_kind
from collectives.virtual.gpu.values import (
    UnknownValueError,
    fake_tensors,
    is_plain,
    is_small,
    set_value,
    value_of,
    with_values,
)

_copy = torch.ops.aten.copy_.default


def compute(
    known: Operation,
    func: Any,
    args: Any,
    kwargs: Any,
    shaped: Any,
    has_data: bool,
    by: Callable[..., Any] | None = None,
) -> Any:
    """Return the results of an operation with their values, where those of its arguments are known.

    Those of one in place are the script's own arguments.
    """
    if known.draws and not has_data and kwargs.get("generator") is None:
        _note_draw()
    sizes = shaped
    if known.mutates:
        if isinstance(shaped, FakeTensor) and not any(known.writes):
            changed = first_tensor(known.changed(args, kwargs))
            shaped = changed if is_plain(changed) else shaped
        for tensor in fake_tensors(args) if known.mutates_kinds else ():
            forget_kind(tensor)
    elif not has_data and not _is_worth_it(args, shaped):
        return shaped
    try:
        values, options = with_values(args), with_values(kwargs)
    except UnknownValueError:
        if known.mutates:
            _lose_changed(known, args, kwargs, sizes)
        return shaped
    computed = (by or value_on_cpu)(known, func, values, options)
    if has_data:
        _check_complete(func, shaped, computed)
    base = first_tensor(args) if known.is_view else None
    _pair(shaped, computed, args, base if isinstance(base, FakeTensor) else None)
    return shaped


def _lose_changed(known: Operation, args: Any, kwargs: Any, sizes: Any) -> None:
    """Let all be unknown into which an operation writes; ``out`` tensors take the results' *sizes*."""
    results = tensors_in(sizes) if known.resizes else ()
    for tensor, result in zip_longest(tensors_in(known.changed(args, kwargs)), results):
        if is_plain(tensor) and isinstance(result, FakeTensor):
            tensor.resize_(result.shape)
        data_dependent.lose(tensor)


def value_on_cpu(known: Operation, func: Any, values: Any, options: Any) -> Any:
    """Return what an operation gives for tensors of the CPU, and let a graph capture it, if one does."""
    devices = CudaDevices.here()
    if devices is None or devices.gpu.graph is None:
        return carry_out(known, func, values, options)
    return devices.gpu.graph.compute(known, func, values, options)


def carry_out(known: Operation, func: Any, values: Any, options: Any) -> Any:
    """Return what an operation gives for tensors of the CPU; it draws from the device's generator."""
    devices = CudaDevices.here() if known.draws and options.get("generator") is None else None
    if devices is None:
        return on_cpu(func, values, options)
    with devices.random.drawing():
        return on_cpu(func, values, options)


def _note_draw() -> None:
    devices = CudaDevices.here()
    if devices is None:
        return
    if devices.gpu.graph is not None:
        devices.gpu.graph.draw()
    else:
        devices.random.move_on()


def _check_complete(func: Any, shaped: Any, computed: Any) -> None:
    """Check that every result on the device has a value.

    Raises:
        NotSupportedError: one has none.
    """
    if isinstance(shaped, (list, tuple)):
        pairs = zip(shaped, computed, strict=False) if isinstance(computed, (list, tuple)) else ()
        for one, value in pairs:
            _check_complete(func, one, value)
    elif computed is None and isinstance(shaped, FakeTensor):
        raise NotSupportedError(
            f"{func} has a result on the device for which the CPU's kernel gives no value; use another "
            "operation, or run without data: testbed run --fake"
        )


def _is_worth_it(args: Any, result: Any) -> bool:
    """Return whether a run without data computes the value of *result*, should it be known."""
    first = args[0] if args else None
    if isinstance(first, FakeTensor) and value_of(first) is None:
        return False
    tensor = first_tensor(result)
    return tensor is not None and is_small(tensor, known_integers())


def _pair(shaped: Any, computed: Any, args: Any, base: FakeTensor | None) -> None:
    """Give results the values that were computed for them."""
    if isinstance(shaped, FakeTensor):
        if computed is not None and not any(shaped is value for value in args):
            set_value(shaped, _laid_out(computed, shaped, base is not None), base)
    elif isinstance(shaped, (list, tuple)) and isinstance(computed, (list, tuple)):
        for one, value in zip(shaped, computed, strict=False):
            _pair(one, value, args, base)


def _laid_out(value: Tensor, shaped: FakeTensor, is_view: bool) -> Tensor:
    """Return *value* with the type and the strides that the device's kernel would give it."""
    if is_view or (value.dtype is shaped.dtype and value.stride() == shaped.stride()):
        return value
    laid_out = torch.empty_strided(shaped.shape, shaped.stride(), dtype=shaped.dtype)
    copied: Tensor = value_on_cpu(operation_of(_copy), _copy, (laid_out, value), {})
    return copied
