"""Operations of CUDA alone, carried out on the CPU for the values of virtual tensors.

Normalization layers in 16 bits are carried out in float32 where the CPU does not take their types.  Kernels
of CUDA keep statistics of activations in 16 bits in float32, and take both, as they take running statistics
in float32 beside weights in 16 bits; those of the CPU refuse them together.  What is computed is rounded to
the types of the device's results at the end.

Attention that drops weights, which the CPU's fused kernel does not, is products and softmax, in single
precision or double; the backward pass computes them again, and drops by the same seed.  With weights W, the
mask M of those kept, divided by the share that is kept, and D = W M:

    output = D V     dV = D' dO     dW = (dO V') M     dS = W (dW - sum(dW W))     dQ = dS K     dK = dS' Q
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from collectives.errors import NotSupportedError
from collectives.virtual.computation.operations import tensors_in
from collectives.virtual.gpu import recurrent_cells
from collectives.virtual.gpu.stock import cuda_only

_aten = torch.ops.aten
_ROWS = 32
"""To a multiple of which the memory-efficient kernel fills up its sums."""


def on_cpu(func: Any, args: Any, kwargs: Any) -> Any:
    """Return what *func* gives for tensors of the CPU, in place or as new ones.

    Raises:
        NotSupportedError: the CPU has no kernel for it.
        RuntimeError: the arguments do not go together.
    """
    own = _OWN.get(func)
    try:
        return func(*args, **kwargs) if own is None else own(*args, **kwargs)
    except NotImplementedError:
        decomposed = func.decompose(*args, **kwargs) if own is None else NotImplemented
        if decomposed is NotImplemented:
            raise NotSupportedError(
                f"{func} has no kernel of the CPU, which computes the values of virtual CUDA tensors; use "
                "another operation, or run without data: testbed run --fake"
            ) from None
        return decomposed
    except RuntimeError:
        if own is not None:
            raise
        computed = in_one_type(func, args, kwargs)
        if computed is NotImplemented:
            raise
        return computed


def _flash(
    query: Tensor, key: Tensor, value: Tensor, dropout: float = 0.0, causal: bool = False,
    debug: bool = False, *, scale: float | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    output, logarithms = _aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, causal, scale=scale
    )
    seed = 0
    if dropout:
        seed = drawn_seed()
        output.copy_(DroppingAttention(dropout, causal, scale, None, seed).forward(query, key, value))
    seeds = torch.tensor([seed, 0], dtype=torch.uint64), torch.zeros((), dtype=torch.uint64)
    return (output, logarithms, None, None, query.shape[-2], key.shape[-2], *seeds, output.new_empty(0))


def _flash_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, output: Tensor, logarithms: Tensor,
    cum_q: Any, cum_k: Any, max_q: Any, max_k: Any, dropout: float, causal: bool, seeds: Tensor, *rest: Any,
    scale: float | None = None,
) -> Any:  # fmt: skip
    if dropout:
        dropping = DroppingAttention(dropout, causal, scale, None, int(seeds[0]))
        return dropping.backward(grad, query, key, value)
    return _aten._scaled_dot_product_flash_attention_for_cpu_backward(
        grad, query, key, value, output, _by_position(logarithms), 0.0, causal, scale=scale
    )


def _efficient(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, logarithms: bool, dropout: float = 0.0,
    causal: bool = False, *, scale: float | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    output, sums = _aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, causal, attn_mask=bias, scale=scale
    )
    seed = 0
    if dropout:
        seed = drawn_seed()
        output.copy_(DroppingAttention(dropout, causal, scale, bias, seed).forward(query, key, value))
    sums = torch.nn.functional.pad(sums, (0, -sums.shape[-1] % _ROWS)) if logarithms else sums[..., :0]
    return (output, sums, torch.tensor(seed), torch.zeros((), dtype=torch.int64))


def _efficient_backward(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, output: Tensor,
    logarithms: Tensor, seed: Any, offset: Any, dropout: float, mask: Any, causal: bool = False, *,
    scale: float | None = None,
) -> tuple[Any, ...]:  # fmt: skip
    if dropout:
        dropping = DroppingAttention(dropout, causal, scale, bias, int(seed))
        return (*dropping.backward(grad, query, key, value), None)
    rows = logarithms[..., : query.shape[-2]]
    grads = _aten._scaled_dot_product_flash_attention_for_cpu_backward(
        grad, query, key, value, output, _by_position(rows), 0.0, causal, attn_mask=bias, scale=scale
    )
    return (
        *grads,
        _bias_gradient(grad, query, key, value, bias, output, rows, causal, scale) if mask[3] else None,
    )


def _bias_gradient(
    grad: Tensor, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, output: Tensor,
    logarithms: Tensor, causal: bool, scale: float | None,
) -> Tensor | None:  # fmt: skip
    """Return the gradient of what is added to the products, for which the CPU's kernel gives none."""
    if bias is None:
        return None
    query, key, value, output, grad = (one.float() for one in (query, key, value, output, grad))
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale) + bias
    if causal:
        scores += scores.new_full(scores.shape[-2:], float("-inf")).triu(1)
    weights = (scores - logarithms[..., None]).exp().nan_to_num(0)  # of positions that see none
    return (weights * (grad @ value.mT - (grad * output).sum(-1, keepdim=True))).to(bias.dtype)


def _log_sigmoid(tensor: Tensor) -> tuple[Tensor, Tensor]:
    return torch.nn.functional.logsigmoid(tensor), tensor.new_empty(0)  # the CPU's kernel keeps a buffer


def _log_sigmoid_backward(grad: Tensor, tensor: Tensor, buffer: Tensor) -> Tensor:
    return grad * (-tensor).sigmoid()


def _in_float(operation: Any) -> Callable[..., Any]:
    """Return a softmax that may take half types to float32, for which the CPU has no kernel."""

    def softmax(tensor: Tensor, dim: int, to_float: bool) -> Any:
        return operation(tensor.float() if to_float else tensor, dim, False)

    return softmax


def _back_from_float(operation: Any) -> Callable[..., Any]:
    """Return the backward pass of that."""

    def backward(grad: Tensor, output: Tensor, dim: int, dtype: torch.dtype) -> Any:
        return operation(grad, output, dim, output.dtype).to(dtype)

    return backward


def _histc(tensor: Tensor, bins: int = 100, low: float = 0, high: float = 0) -> Tensor:
    """Count integers, too, for which the CPU has no kernel."""
    return torch.histc(tensor.double(), bins, low, high).to(tensor.dtype)


def _by_position(logarithms: Tensor) -> Tensor:
    """Return what is (batch, heads, positions) in the order of memory that the CPU's kernel writes."""
    return logarithms.transpose(1, 2).contiguous().transpose(1, 2)


_OWN: Mapping[Any, Callable[..., Any]] = {
    **cuda_only.KERNELS,
    _aten._scaled_dot_product_flash_attention.default: _flash,
    _aten._scaled_dot_product_flash_attention_backward.default: _flash_backward,
    _aten._scaled_dot_product_efficient_attention.default: _efficient,
    _aten._scaled_dot_product_efficient_attention_backward.default: _efficient_backward,
    _aten.histc.default: _histc,
    _aten.log_sigmoid_forward.default: _log_sigmoid,
    _aten.log_sigmoid_backward.default: _log_sigmoid_backward,
    **{kernel: _in_float(kernel) for kernel in (_aten._softmax.default, _aten._log_softmax.default)},
    **{
        kernel: _back_from_float(kernel)
        for kernel in (_aten._softmax_backward_data.default, _aten._log_softmax_backward_data.default)
    },
    _aten._thnn_fused_lstm_cell.default: recurrent_cells.lstm,
    _aten._thnn_fused_lstm_cell_backward_impl.default: recurrent_cells.lstm_backward,
    _aten._thnn_fused_gru_cell.default: recurrent_cells.gru,
    _aten._thnn_fused_gru_cell_backward.default: recurrent_cells.gru_backward,
}


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

    Raises:
        RuntimeError: the CPU refuses the call whatever its types are.
    """
    if func not in _MIXED:
        return NotImplemented
    dtypes = {tensor.dtype for tensor in tensors_in((args, kwargs))}
    exact = torch.float64 if torch.float64 in dtypes else torch.float32
    return func(*_in(exact, args), **_in(exact, kwargs))


def _in(dtype: torch.dtype, values: Any) -> Any:
    """Return *values* with floating point tensors as ones of *dtype*."""
    if isinstance(values, Tensor):
        return values.to(dtype) if values.is_floating_point() else values
    if isinstance(values, Mapping):
        return {name: _in(dtype, value) for name, value in values.items()}
    if type(values) in (list, tuple):
        return type(values)(_in(dtype, value) for value in values)
    return values


@dataclass(frozen=True)
class DroppingAttention:
    """Attention of tensors (batch, heads, positions, head).

    Args:
        share: of the weights that is dropped.
        causal: no position looks at later ones.
        scale: of the products; None: that of the head's size.
        bias: is added to the products; None: nothing is.
        seed: of what is dropped.
    """

    share: float
    causal: bool
    scale: float | None
    bias: Tensor | None
    seed: int

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Return the output, of the type of *query*."""
        weights, kept = self._weights_and_mask(query, key)
        return ((weights * kept) @ _precise(value)).to(query.dtype)

    def backward(self, grad: Tensor, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        """Return the gradients of query, key and value."""
        weights, kept = self._weights_and_mask(query, key)
        grad = _precise(grad)
        of_value = (weights * kept).transpose(-2, -1) @ grad
        of_weights = (grad @ _precise(value).transpose(-2, -1)) * kept
        of_scores = (
            weights * (of_weights - (of_weights * weights).sum(-1, keepdim=True)) * self._factor(query)
        )
        of_query, of_key = of_scores @ _precise(key), of_scores.transpose(-2, -1) @ _precise(query)
        return of_query.to(query.dtype), of_key.to(key.dtype), of_value.to(value.dtype)

    def _factor(self, query: Tensor) -> float:
        return query.shape[-1] ** -0.5 if self.scale is None else self.scale

    def _weights_and_mask(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        scores = _precise(query) @ _precise(key).transpose(-2, -1) * self._factor(query)
        if self.bias is not None:
            scores = scores + self.bias
        if self.causal:
            allowed = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
            scores = scores.masked_fill(~allowed, float("-inf"))
        weights = torch.softmax(scores, -1)

        kept = torch.zeros_like(weights)
        if self.share < 1:
            generator = torch.Generator().manual_seed(self.seed)
            kept.bernoulli_(1 - self.share, generator=generator).div_(1 - self.share)
        return weights, kept


def drawn_seed() -> int:
    """Return a seed, drawn from the generator of this thread."""
    return int(torch.randint(1 << 62, ()).item())


def _precise(tensor: Tensor) -> Tensor:
    return tensor if tensor.dtype == torch.float64 else tensor.float()
