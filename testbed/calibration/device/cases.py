"""Kernels that a calibration of a device measures: calls of torch's operations over grids of sizes.

Grids are wider on an accelerator, whose kernels are only filled by larger shapes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import torch

from testbed.calibration.device.memory import Operands

Call: TypeAlias = tuple[Any, tuple[Any, ...], dict[str, Any]]
"""An overload, its arguments and its named ones."""

_aten = torch.ops.aten
_HEADS = 16  # sequences × heads
_WIDTH = 1024  # of a row


@dataclass(frozen=True)
class Case:
    """A kernel at one size.

    Attributes:
        name: for people.
        sizes: as they are given to *call*.
        call: returns a call with operands out of those given to it.
    """

    name: str
    sizes: Mapping[str, int]
    call: Callable[[Operands], Call]


def cases(*, accelerator: bool) -> Iterator[Case]:
    """Yield every kernel at every size."""
    large = (4096, 16384) if accelerator else (4096,)
    sizes = (1, 16, 64, 256, 1024, *large)
    yield from _grid("product", _product, m=sizes, n=sizes, k=sizes)
    square = (1, 16, 64, 256, 1024)
    yield from _grid("batched_product", _batched_product, m=square, n=square, k=square)
    yield from _convolutions(samples=(1, 16, *((128,) if accelerator else ())))

    keys = (64, 256, 1024, *((4096,) if accelerator else ()))
    for causal in (False, True):
        prefix = "causal_" if causal else ""
        for name, attend in (("attention", _attention), ("attention_backward", _attention_backward)):
            yield from _grid(f"{prefix}{name}", partial(attend, causal=causal), keys=keys, head=(32, 64, 128))

    numels = (1, 2**10, 2**14, 2**17, 2**20, 2**22, 2**23, *((2**26,) if accelerator else ()))
    for name, arguments in _MEMORY_BOUND.items():
        yield from _grid(name, arguments, numel=numels)
    for name, pictures in _OF_PICTURES.items():
        yield from _grid(name, pictures, edge=(2, 8, 32), numel=(2**12, *numels[2:-1]))


def _convolutions(samples: Sequence[int]) -> Iterator[Case]:
    """Yield convolutions, their backward passes, and both of those that leave out pixels."""
    passes: dict[str, Callable[..., Call]] = {
        "convolution": _convolution,
        "convolution_backward": _convolution_backward,
    }
    for stride, prefix in ((1, ""), (2, "strided_")):
        few = stride > 1
        edge, outputs = (2, 8, 32), (32, 512) if few else (8, 32, 128, 512)
        depth = (27, 288, 2304) if few else (27, 288, 1152, 4608)
        inputs = (32, 512) if few else (8, 32, 128, 512, 2048)
        kinds: dict[str, tuple[dict[str, int], dict[str, Sequence[int]]]] = {
            "": ({"side": 3}, {"depth": depth, "outputs": outputs}),
            "pointwise_": ({"side": 1}, {"depth": inputs, "outputs": outputs}),
            "depthwise_": ({"side": 3, "depth": 9, "outputs": 1}, {"channels": (8, 64, 512)}),
        }
        for (name, call), (kind, (fixed, axes)) in itertools.product(passes.items(), kinds.items()):
            whole = partial(call, stride=stride, **fixed)
            yield from _grid(f"{prefix}{kind}{name}", whole, samples=samples, edge=edge, **axes)


def _grid(name: str, call: Callable[..., Call], **axes: Sequence[int]) -> Iterator[Case]:
    for values in itertools.product(*axes.values()):
        sizes = dict(zip(axes, values, strict=True))
        yield Case(name, sizes, partial(call, **sizes))


def _product(some: Operands, m: int, n: int, k: int) -> Call:
    return _aten.mm.default, (some(m, k), some(k, n)), {}


def _batched_product(some: Operands, m: int, n: int, k: int) -> Call:
    return _aten.bmm.default, (some(8, m, k), some(8, k, n)), {}


def _convolution(
    some: Operands,
    samples: int,
    edge: int,
    depth: int,
    outputs: int,
    side: int,
    stride: int,
    channels: int | None = None,
) -> Call:
    """Return a convolution whose results have this *edge*; with *channels* each has its own kernel."""
    inputs = depth // side**2 if channels is None else channels
    outputs = outputs if channels is None else channels
    pictures = some(samples, inputs, edge * stride, edge * stride)
    weight = some(outputs, inputs if channels is None else 1, side, side)
    around = [side // 2] * 2
    return _aten.convolution.default, (
        pictures, weight, None, [stride] * 2, around, [1, 1], False, [0, 0], channels or 1,
    ), {}  # fmt: skip


def _convolution_backward(some: Operands, **sizes: Any) -> Call:
    _, (pictures, weight, _, *how), _ = _convolution(some, **sizes)
    gradient = some(pictures.shape[0], weight.shape[0], sizes["edge"], sizes["edge"])
    return _aten.convolution_backward.default, (
        gradient, pictures, weight, None, *how, [True, True, False],
    ), {}  # fmt: skip


def _attention(some: Operands, keys: int, head: int, causal: bool) -> Call:
    query, key, value = (some(1, _HEADS, keys, head) for _ in range(3))
    if query.device.type == "cpu":
        return _aten._scaled_dot_product_flash_attention_for_cpu.default, (query, key, value, 0.0, causal), {}
    if query.dtype in (torch.float16, torch.bfloat16):
        return _aten._scaled_dot_product_flash_attention.default, (query, key, value, 0.0, causal), {}
    return _aten._scaled_dot_product_efficient_attention.default, (
        query, key, value, None, True, 0.0, causal,
    ), {}  # fmt: skip


def _attention_backward(some: Operands, keys: int, head: int, causal: bool) -> Call:
    """Return the backward pass through what the forward pass left."""
    func, (query, key, value, *_), _ = _attention(some, keys, head, causal)
    gradient = some(1, _HEADS, keys, head)
    forward = func(*_attention(some, keys, head, causal)[1])
    if query.device.type == "cpu":
        return _aten._scaled_dot_product_flash_attention_for_cpu_backward.default, (
            gradient, query, key, value, *forward, 0.0, causal,
        ), {}  # fmt: skip
    if query.dtype in (torch.float16, torch.bfloat16):
        out, logsumexp, first, second, longest, most, seed, offset, *_ = forward
        return _aten._scaled_dot_product_flash_attention_backward.default, (
            gradient, query, key, value, out, logsumexp, first, second, longest, most, 0.0, causal,
            seed, offset,
        ), {}  # fmt: skip
    out, logsumexp, seed, offset = forward
    return _aten._scaled_dot_product_efficient_attention_backward.default, (
        gradient, query, key, value, None, out, logsumexp, seed, offset, 0.0,
        [True, True, True, False], causal,
    ), {}  # fmt: skip


def _rows(some: Operands, numel: int, *, written: bool = False) -> torch.Tensor:
    width = min(_WIDTH, numel)
    return some(numel // width, width, written=written)


def _pictures(some: Operands, edge: int, numel: int) -> torch.Tensor:
    """Return pictures of this *edge* and 64 channels, or fewer where *numel* is small."""
    channels = min(64, max(1, numel // edge**2))
    return some(max(1, numel // (channels * edge**2)), channels, edge, edge)


def _each(func: Any, count: int, *more: Any, **named: Any) -> Callable[[Operands, int], Call]:
    """Return the calls of *func* with *count* tensors of rows, and *more*; it may change the first."""

    def call(some: Operands, numel: int) -> Call:
        rest = (_rows(some, numel) for _ in range(count - 1))
        return func, (_rows(some, numel, written=in_place), *rest, *more), named

    in_place = func.overloadpacket.__name__.endswith("_")
    return call


def _listed(func: Any, count: int, *more: Any) -> Callable[[Operands, int], Call]:
    return lambda some, numel: (
        func,
        ([_rows(some, max(1, numel // count)) for _ in range(count)], *more),
        {},
    )


def _strided_copy(some: Operands, numel: int) -> Call:
    """Copy what attention gathers of its heads, of 64 elements each."""
    numel = max(numel, 2**10)
    heads = some(numel // 2**9, 8, 64).transpose(0, 1)
    return _aten.clone.default, (heads,), {"memory_format": torch.contiguous_format}


def _transposed_copy(some: Operands, numel: int) -> Call:
    height = max(2, 2 ** (numel.bit_length() // 2))
    rows = some(height, max(2, numel // height))
    return _aten.clone.default, (rows.t(),), {"memory_format": torch.contiguous_format}


def _to_copy(some: Operands, numel: int) -> Call:
    other = torch.bfloat16 if some.dtype == torch.float32 else torch.float32
    return _aten._to_copy.default, (_rows(some, numel),), {"dtype": other}


def _layer_norm(some: Operands, numel: int) -> Call:
    x = _rows(some, numel)
    width = x.shape[-1]
    return _aten.native_layer_norm.default, (x, [width], some(width), some(width), 1e-5), {}


def _layer_norm_backward(some: Operands, numel: int) -> Call:
    func, (x, shape, weight, bias, eps), _ = _layer_norm(some, numel)
    _, mean, rstd = func(x, shape, weight, bias, eps)
    return _aten.native_layer_norm_backward.default, (
        _rows(some, numel), x, shape, mean, rstd, weight, bias, [True, True, True],
    ), {}  # fmt: skip


def _batch_norm(some: Operands, edge: int, numel: int) -> Call:
    x = _pictures(some, edge, numel)
    weight, bias, mean, variance = (some(x.shape[1]).float() for _ in range(4))
    return _aten.native_batch_norm.default, (x, weight, bias, mean, variance, True, 0.1, 1e-5), {}


def _batch_norm_backward(some: Operands, edge: int, numel: int) -> Call:
    func, args, _ = _batch_norm(some, edge, numel)
    _, mean, invstd = func(*args)
    x, weight, _, running_mean, running_variance, *_ = args
    return _aten.native_batch_norm_backward.default, (
        _pictures(some, edge, numel), x, weight, running_mean, running_variance, mean, invstd, True, 1e-5,
        [True, True, True],
    ), {}  # fmt: skip


def _max_pool(some: Operands, edge: int, numel: int) -> Call:
    return _aten.max_pool2d_with_indices.default, (_pictures(some, edge, numel), [2, 2], [2, 2]), {}


def _max_pool_backward(some: Operands, edge: int, numel: int) -> Call:
    func, (x, *window), _ = _max_pool(some, edge, numel)
    out, indices = func(x, *window)
    return _aten.max_pool2d_with_indices_backward.default, (
        some(*out.shape), x, *window, [0, 0], [1, 1], False, indices,
    ), {}  # fmt: skip


def _picture_mean(some: Operands, edge: int, numel: int) -> Call:
    return _aten.mean.dim, (_pictures(some, edge, numel), [-1, -2], True), {}


def _softmax_backward(func: Any) -> Callable[[Operands, int], Call]:
    return lambda some, numel: (func, (_rows(some, numel), _rows(some, numel), -1, some.dtype), {})


def _nll(some: Operands, numel: int) -> Call:
    x = _rows(some, numel)
    return _aten.nll_loss_forward.default, (x, some.indices(x.shape[1], x.shape[0]), None, 1, -100), {}


def _nll_backward(some: Operands, numel: int) -> Call:
    func, (x, target, *rest), _ = _nll(some, numel)
    _, weight = func(x, target, *rest)
    return _aten.nll_loss_backward.default, (some(1)[0], x, target, None, 1, -100, weight), {}


def _embedding(some: Operands, numel: int) -> Call:
    width = min(512, numel)
    return _aten.embedding.default, (some(2**13, width), some.indices(2**13, numel // width)), {}


def _embedding_backward(some: Operands, numel: int) -> Call:
    width = min(512, numel)
    index = some.indices(max(1, numel // width), max(1, numel // width))
    return _aten.embedding_dense_backward.default, (
        some(numel // width, width), index, max(1, numel // width), -1, False,
    ), {}  # fmt: skip


_MEMORY_BOUND: Mapping[str, Callable[[Operands, int], Call]] = {
    "add": _each(_aten.add.Tensor, 2),
    "add_": _each(_aten.add_.Tensor, 2),
    "mul": _each(_aten.mul.Tensor, 2),
    "mul_": _each(_aten.mul_.Tensor, 1, 1.0),
    "div": _each(_aten.div.Tensor, 2),
    "sqrt": _each(_aten.sqrt.default, 1),
    "rsqrt": _each(_aten.rsqrt.default, 1),
    "exp": _each(_aten.exp.default, 1),
    "pow": _each(_aten.pow.Tensor_Scalar, 1, 2),
    "lerp_": _each(_aten.lerp_.Scalar, 2, 0.5),
    "addcmul_": _each(_aten.addcmul_.default, 3),
    "addcdiv_": _each(_aten.addcdiv_.default, 3),
    "relu": _each(_aten.relu.default, 1),
    "threshold_backward": _each(_aten.threshold_backward.default, 2, 0),
    "gelu": _each(_aten.gelu.default, 1),
    "gelu_backward": _each(_aten.gelu_backward.default, 2),
    "tanh": _each(_aten.tanh.default, 1),
    "tanh_backward": _each(_aten.tanh_backward.default, 2),
    "sigmoid": _each(_aten.sigmoid.default, 1),
    "sigmoid_backward": _each(_aten.sigmoid_backward.default, 2),
    "silu": _each(_aten.silu.default, 1),
    "silu_backward": _each(_aten.silu_backward.default, 2),
    "bernoulli_": _each(_aten.bernoulli_.float, 1, 0.9),
    "zero_": _each(_aten.zero_.default, 1),
    "fill_": _each(_aten.fill_.Scalar, 1, 0.5),
    "ones_like": _each(_aten.ones_like.default, 1),
    "copy_": _each(_aten.copy_.default, 2),
    "clone": _each(_aten.clone.default, 1),
    "cat": _listed(_aten.cat.default, 2),
    "strided_copy": _strided_copy,
    "transposed_copy": _transposed_copy,
    "_to_copy": _to_copy,
    "sum": _each(_aten.sum.default, 1),
    "column_sum": _each(_aten.sum.dim_IntList, 1, [0], True),
    "mean": _each(_aten.mean.default, 1),
    "_softmax": _each(_aten._softmax.default, 1, -1, False),
    "_softmax_backward_data": _softmax_backward(_aten._softmax_backward_data.default),
    "_log_softmax": _each(_aten._log_softmax.default, 1, -1, False),
    "_log_softmax_backward_data": _softmax_backward(_aten._log_softmax_backward_data.default),
    "nll_loss_forward": _nll,
    "nll_loss_backward": _nll_backward,
    "native_layer_norm": _layer_norm,
    "native_layer_norm_backward": _layer_norm_backward,
    "embedding": _embedding,
    "embedding_dense_backward": _embedding_backward,
}
"""Of memory-bound operations, by the kind under which they are listed: the call for so many elements."""

_OF_PICTURES: Mapping[str, Callable[[Operands, int, int], Call]] = {
    "native_batch_norm": _batch_norm,
    "native_batch_norm_backward": _batch_norm_backward,
    "max_pool2d_with_indices": _max_pool,
    "max_pool2d_with_indices_backward": _max_pool_backward,
    "picture_mean": _picture_mean,
}
"""The same of operations on pictures: the call for an edge and so many elements."""
