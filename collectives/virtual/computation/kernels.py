"""Kinds and shapes of kernels, under which the tables of a device (`sim.hardware.kernels`) list operations.

| kind | shape | operations |
|---|---|---|
| ``product`` | ``m``, ``n``, ``k`` | of two matrices: ``mm``, ``addmm`` |
| ``batched_product`` | ``m``, ``n``, ``k``, of one of the batch | ``bmm``, ``baddbmm`` |
| ``convolution`` | ``samples``, ``edge`` (of results), ``depth`` (inputs × kernel), ``outputs`` | one group |
| ``pointwise_convolution`` | the same | those whose kernel is one element |
| ``depthwise_convolution`` | ``samples``, ``edge``, ``channels`` | one input channel for each group |
| ``attention``, ``causal_attention`` | ``keys`` of a sequence, ``head`` (its dimension) | the fused ones |
| ``column_sum`` | ``bytes`` | sums that keep the last dimension, as gradients of biases are |
| ``strided_copy`` | ``bytes`` | copies of what is not contiguous, with rows that are |
| ``transposed_copy`` | ``bytes`` | copies of what has not even contiguous rows |
| norms and pools of pictures, ``picture_mean`` | ``edge``, ``bytes`` of the pictures | |
| every other operation, by torch's name | ``bytes`` read and written | |

The edge of a picture is the root of its pixels, rounded.  Before the kinds of convolutions that leave out
pixels stands ``strided_``, behind those of backward passes ``_backward``.  Where torch's name has no
table, that of the operation in place or not in place stands for it, and then ``add`` for whatever works
element by element.  Transposed and grouped convolutions have kinds of their own, which nothing stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod, sqrt
from typing import Any

import torch

from collectives.virtual.computation.operations import named
from sim.hardware import Device

_ATTENTION = (
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
)
_COPIES = {"clone", "copy_", "_to_copy"}
_SAME = {"_native_batch_norm_legit": "native_batch_norm"}
"""Operations that others consist of, and in whose place they are measured."""
_PRODUCT = ("m", "n", "k")
_CONVOLUTION = ("samples", "edge", "depth", "outputs")
_PICTURES = {
    "native_batch_norm",
    "native_batch_norm_backward",
    "max_pool2d_with_indices",
    "max_pool2d_with_indices_backward",
}
_AXES = {
    "product": _PRODUCT,
    "batched_product": _PRODUCT,
    "convolution": _CONVOLUTION,
    "pointwise_convolution": _CONVOLUTION,
    "depthwise_convolution": ("samples", "edge", "channels"),
    "attention": ("keys", "head"),
    "causal_attention": ("keys", "head"),
}


def axes_of(operation: str) -> tuple[str, ...]:
    """Return what makes up the shape of a kernel of this kind."""
    if operation in _PICTURES or operation == "picture_mean":
        return ("edge", "bytes")
    return _AXES.get(operation.removesuffix("_backward").removeprefix("strided_"), ("bytes",))


@dataclass(frozen=True)
class Kernel:
    """A kernel as device files list it.

    Attributes:
        operations: kinds under which it may stand, the best first.
        shape: the sizes that its rate depends on.
    """

    operations: Sequence[str]
    shape: Mapping[str, int]


def kernel_of(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any, nbytes: int) -> Kernel:
    """Return under what a call of the overload *func* stands, which reads and writes *nbytes*."""
    name: str = func.overloadpacket.__name__
    name = _SAME.get(name, name)
    if name in ("mm", "addmm"):
        left, right = args[-2:] if name == "mm" else args[1:3]
        return Kernel(["product"], {"m": left.shape[0], "n": right.shape[1], "k": left.shape[1]})
    if name in ("bmm", "baddbmm"):
        left, right = args[-2:] if name == "bmm" else args[1:3]
        return Kernel(["batched_product"], {"m": left.shape[1], "n": right.shape[2], "k": left.shape[2]})
    if name in ("convolution", "convolution_backward"):
        return _convolution(name, named(func, args, kwargs), result)
    if name.startswith(_ATTENTION):
        return _attention(name, named(func, args, kwargs))
    if name in _PICTURES:
        pictures = args[1] if name.endswith("_backward") else args[0]
        return Kernel([name], {"edge": _edge(pictures), "bytes": _bytes(pictures)})
    if name == "mean" and args[0].dim() == 4 and result.numel() == args[0].shape[0] * args[0].shape[1]:
        return Kernel(["picture_mean"], {"edge": _edge(args[0]), "bytes": _bytes(args[0])})
    return Kernel(list(_names(func, name, args, result)), {"bytes": nbytes})


def _edge(pictures: torch.Tensor) -> int:
    """Return the edge of a picture: samples and channels are the first two dimensions."""
    return max(1, round(sqrt(prod(pictures.shape[2:]))))


def _bytes(tensor: torch.Tensor) -> int:
    return int(tensor.numel() * tensor.element_size())


def _convolution(name: str, named: Mapping[str, Any], result: Any) -> Kernel:
    weight, groups = named["weight"], named["groups"]
    pictures = named.get("grad_output", result)
    shape = {"samples": pictures.shape[0], "edge": _edge(pictures)}
    if named["transposed"]:
        return Kernel([f"transposed_{name}"], shape)
    elements = prod(weight.shape[2:])
    prefix = "strided_" if max(named["stride"]) > 1 else ""
    if groups == 1:
        kind = f"{prefix}{name}" if elements > 1 else f"{prefix}pointwise_{name}"
        return Kernel([kind], {**shape, "depth": weight.shape[1] * elements, "outputs": weight.shape[0]})
    if weight.shape[1] == 1:
        return Kernel([f"{prefix}depthwise_{name}"], {**shape, "channels": groups})
    return Kernel([f"grouped_{name}"], shape)


def _attention(name: str, named: Mapping[str, Any]) -> Kernel:
    kind = "causal_attention" if named.get("is_causal") else "attention"
    shape = {"keys": named["key"].shape[-2], "head": named["query"].shape[-1]}
    return Kernel([f"{kind}_backward" if "backward" in name else kind], shape)


def _names(func: Any, name: str, args: Sequence[Any], result: Any) -> Iterator[str]:
    """Yield under which names an operation may stand that memory bounds, the best first."""
    if name == "sum" and result.dim() and result.shape[-1] == args[0].shape[-1]:
        yield "column_sum"
    source = args[1] if name == "copy_" else args[0] if args else None
    if name in _COPIES and isinstance(source, torch.Tensor) and not source.is_contiguous():
        yield "strided_copy" if source.stride(-1) == 1 else "transposed_copy"

    in_place = name.endswith("_")
    yield name
    yield name.removesuffix("_") if in_place else f"{name}_"
    if torch.Tag.pointwise in func.tags:
        yield "add_" if in_place else "add"


def measured_ps(
    device: Device,
    func: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    result: Any,
    dtype: str,
    flops: int,
    nbytes: int,
    say: Callable[[str, str], None],
) -> int | None:
    """Return what a kernel takes by rates measured on *device*, or None if none was of its kind."""
    if not device.kernels:
        return None
    kernel = kernel_of(func, args, kwargs, result, nbytes)
    tables = (device.kernels.get((operation, dtype)) for operation in kernel.operations)
    table = next((table for table in tables if table is not None), None)
    work = 0 if table is None else flops if table.work == "arithmetic" else nbytes
    if table is None or not work:
        unmeasured = f"{device.name}: kernels that were not measured, and take what its peaks say"
        say(unmeasured, f"{kernel.operations[0]} in {dtype}")
        return None

    if not table.covers(kernel.shape):
        outside = "kernels that lie outside of the measured shapes, and go at the rate of the nearest"
        say(f"{device.name}: {outside}", table.operation)
    return table.duration_ps(work, kernel.shape)
