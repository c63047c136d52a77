"""Operations of virtual CUDA tensors with rules of their own: transfers, and answers to the host.

A rule is called with what executes and the call, and returns its result, or NotImplemented where it is as any
other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, Protocol

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from collectives.virtual.computation.cuda.attention import AttentionShape
from collectives.virtual.computation.operations import Operation, nbytes_of, operation_of
from collectives.virtual.gpu import copies, data_dependent
from collectives.virtual.gpu.accelerator import CudaDevices
from collectives.virtual.gpu.computing import compute, value_on_cpu
from collectives.virtual.gpu.routing import Router
from collectives.virtual.gpu.values import ROUTED, UnknownValueError, forget, set_value, value_of, with_values
from collectives.virtual.memory.tracker import Memory
from collectives.virtual.notices import Notices

LARGE = 1 << 20
"""Elements, above which a tensor of the CPU has no data in a run without data."""
LARGE_OBJECTS = 1 << 28
"""The same of bytes."""
OF_EXPERTS = (
    "topk over another dimension than the last, as where experts choose tokens, goes by no --routing: each "
    "takes as many, and which ones is not known"
)

_aten = torch.ops.aten


class Execution(Protocol):
    """What rules, and attention with blocks, need of `collectives.virtual.gpu.charged_execution`."""

    fake: FakeTensorMode
    has_data: bool
    notices: Notices
    memory: Memory
    router: Router | None

    def transfer(self, nbytes: int, direction: str, waits: bool) -> None:
        """Charge a transfer between host and device."""

    def note_read(self) -> None:
        """Note that the host reads what decides sizes, and is known though there are no data."""

    def bear(self, tensor: Tensor, func: Any) -> None:
        """Note a new tensor of the device."""

    def shaped(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Return the result of an operation, without data."""

    def as_any_other(self, known: Operation, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Carry out an operation as any other."""

    def on_values(self) -> AbstractContextManager[None]:
        """Let operations be carried out on values, at no cost, while the body runs."""

    def launch_block_masked(
        self, name: str, query: Tensor, shape: AttentionShape, flops: int, nbytes: int, part: str
    ) -> None:
        """Launch the kernel of attention with a mask of blocks."""

    def note_unmodelled(self, name: str) -> None:
        """Note a call of an operator whose cost is not known."""


def _item(execution: Execution, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """Read an element; the host waits for all that has been issued before."""
    tensor = args[0]
    if tensor.device.type == "cuda":
        execution.transfer(nbytes_of(tensor), "DtoH", waits=True)
    value = value_of(tensor)
    if value is None:
        return data_dependent.number(tensor, execution.notices)
    if not data_dependent.has_stand_in(tensor.dtype):
        execution.note_read()
    return value.item()


def _to_copy(execution: Execution, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """Copy a tensor from one device to the other; NotImplemented if it stays where it is."""
    source, target = args[0], kwargs.get("device")
    if target is None or target.type in (source.device.type, "meta") or _lacks(execution, source):
        return NotImplemented
    dtype = kwargs.get("dtype") or source.dtype
    waits = not copies.is_non_blocking(func, args, kwargs)
    nbytes = source.numel() * dtype.itemsize
    if target.type == "cuda":
        waits = waits or not copies.is_pinned(source)
        result = execution.shaped(func, types, args, kwargs)
        if not source.is_meta:
            compute(operation_of(func), func, args, kwargs, result, execution.has_data)
        execution.bear(result, func)
        execution.transfer(nbytes, "HtoD", waits)
        return result
    execution.transfer(nbytes, "DtoH", waits)
    value = value_of(source)
    if value is not None:
        if not data_dependent.has_stand_in(source.dtype):
            execution.note_read()
        return value_on_cpu(operation_of(func), func, (value,), {**kwargs, "non_blocking": False})
    if source.numel() > LARGE or not data_dependent.has_stand_in(dtype):
        return execution.fake.dispatch(func, types, args, kwargs)
    return data_dependent.stand_in(source, dtype, execution.notices)


def _copy_(execution: Execution, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """Copy into a tensor of the other device; NotImplemented if both are on one."""
    target, source = args[:2]
    here, there = target.device.type, source.device.type
    if here == there or here == "meta" or _lacks(execution, source):
        return NotImplemented
    waits = not copies.is_non_blocking(func, args, kwargs)
    if here == "cuda":
        waits = waits or not copies.is_pinned(source)
        if source.is_meta:
            forget(target)
        else:
            compute(operation_of(func), func, args, kwargs, target, execution.has_data)
        execution.transfer(nbytes_of(target), "HtoD", waits)
        return target
    execution.transfer(nbytes_of(target), "DtoH", waits)
    value = value_of(source)
    if isinstance(target, FakeTensor):
        compute(operation_of(func), func, args, kwargs, target, execution.has_data)
    elif value is not None:
        value_on_cpu(operation_of(func), func, (target, value), {})
    else:
        data_dependent.lose(target)
    return target


def _made_on_host(execution: Execution, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """Make a tensor of the CPU like one of the device; NotImplemented if it is to be on the device."""
    device = kwargs.get("device")
    if device is None or device.type != "cpu" or args[0].device.type != "cuda":
        return NotImplemented
    like = args[0]
    plain = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype)
    return func(plain, *args[1:], **kwargs)


def _is_set_to(execution: Execution, func: Any, types: Any, args: Any, kwargs: Any) -> bool:
    """Return whether two tensors are the same view of the same memory."""
    one, other = args
    if one.untyped_storage()._cdata != other.untyped_storage()._cdata:
        return False
    places = [(tensor.storage_offset(), tensor.shape, tensor.stride()) for tensor in args]
    return bool(places[0] == places[1])


def _compared(execution: Execution, func: Any, types: Any, args: Any, kwargs: Any) -> bool:
    """Return how two tensors compare; the host waits."""
    execution.transfer(1, "DtoH", waits=True)
    try:
        return bool(func(*with_values(args), **kwargs))
    except UnknownValueError:
        return bool(data_dependent.number(torch.empty((), dtype=torch.bool), execution.notices))


def _check_finite(execution: Execution, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """Look for gradients that are not finite, of which there are none without data."""
    if execution.has_data:
        return NotImplemented
    found = args[1]
    kept = value_of(found)
    kept = kept if kept is None or isinstance(found, FakeTensor) else kept.clone()
    result = execution.as_any_other(operation_of(func), func, types, args, kwargs)
    if isinstance(found, FakeTensor):
        set_value(found, kept)
    else:
        found.copy_(kept)
    return result


def _topk(execution: Execution, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """Choose the largest elements; the router says which, where nobody knows, or notes it."""
    is_last = len(args) < 3 or args[2] in (-1, args[0].dim() - 1)
    if execution.router is None or args[0].device.type != "cuda":
        return NotImplemented
    if not is_last:
        if not execution.has_data:
            execution.notices.add(OF_EXPERTS)
        return NotImplemented
    result = execution.as_any_other(operation_of(func), func, types, args, kwargs)
    assumed = execution.router.choose(args[0], result[1], execution.memory.moment())
    devices = CudaDevices.here()
    if assumed and devices is not None:
        devices.known_integers = ROUTED  # from which others follow
        execution.notices.add(assumed)
    return result


def _lacks(execution: Execution, source: Tensor) -> bool:
    """Return whether *source* has no data where others have; without data one of meta is as good."""
    return execution.has_data and source.is_meta


RULES: Mapping[Any, Callable[..., Any]] = {
    _aten._local_scalar_dense.default: _item,
    _aten._to_copy.default: _to_copy,
    _aten.copy_.default: _copy_,
    _aten.equal.default: _compared,
    _aten.is_set_to.default: _is_set_to,
    _aten.allclose.default: _compared,
    _aten._amp_foreach_non_finite_check_and_unscale_.default: _check_finite,
    _aten.topk.default: _topk,
    _aten._pin_memory.default: lambda execution, func, types, args, kwargs: args[0],
    _aten.is_pinned.default: lambda *_: False,  # memory of the device is not the host's
    **dict.fromkeys(
        (
            _aten.empty_like.default, _aten.zeros_like.default, _aten.ones_like.default,
            _aten.full_like.default, _aten.rand_like.default, _aten.randn_like.default,
            _aten.new_empty.default, _aten.new_zeros.default, _aten.new_ones.default,
            _aten.new_full.default, _aten.new_empty_strided.default,
        ),
        _made_on_host,
    ),
}  # fmt: skip
