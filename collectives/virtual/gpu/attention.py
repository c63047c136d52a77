"""Scaled dot-product attention of virtual CUDA tensors, by the fused kernel that CUDA would take.

A build without CUDA would take the kernel of products and softmax, as it asks a function of CUDA's library
which there is.  Here is the choice of that library: FlashAttention for half types without a mask, the
memory-efficient kernel for others and for masks, products where neither is allowed
(`torch.nn.attention.sdpa_kernel`) or can be.  Where only cuDNN's attention is allowed, FlashAttention stands
for it; it is not taken otherwise.

Source: torch, aten/src/ATen/native/transformers/cuda/sdp_utils.cpp (``select_sdp_backend``,
``use_flash_attention``, ``use_mem_efficient_attention``), transformers/attention.cpp.
"""

from __future__ import annotations

import torch
from torch import Tensor

_aten = torch.ops.aten
_HALF = (torch.float16, torch.bfloat16)
_MAX_FLASH_HEAD = 256


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Return attention, of tensors (batch, heads, sequence, head)."""
    if enable_gqa and query.shape[-3] != key.shape[-3]:
        repeats = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(repeats, -3), value.repeat_interleave(repeats, -3)

    output: Tensor
    if _takes_flash(query, key, value, attn_mask):
        head = query.shape[-1]
        padded = [_padded(tensor) for tensor in (query, key, value)]
        scale = head**-0.5 if scale is None else scale
        results = _aten._scaled_dot_product_flash_attention(*padded, dropout_p, is_causal, False, scale=scale)
        output = results[0]
        return output if output.shape[-1] == head else output[..., :head]

    if _takes_efficient(query, key, value):
        wants_gradient = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
        bias = None if attn_mask is None else _bias(attn_mask, query, key)
        output = _aten._scaled_dot_product_efficient_attention(
            query, key, value, bias, wants_gradient, dropout_p, is_causal, scale=scale
        )[0]
        return output

    output = _aten._scaled_dot_product_attention_math(
        query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale
    )[0]
    return output


def _takes_flash(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> bool:
    allowed = torch.backends.cuda
    return (
        (
            allowed.flash_sdp_enabled()
            or (allowed.cudnn_sdp_enabled() and not allowed.mem_efficient_sdp_enabled())
        )
        and query.dim() == 4
        and mask is None
        and query.dtype in _HALF
        and query.dtype == key.dtype == value.dtype
        and query.shape[-1] == key.shape[-1] == value.shape[-1] <= _MAX_FLASH_HEAD
    )


def _takes_efficient(query: Tensor, key: Tensor, value: Tensor) -> bool:
    alignment = 8 if query.dtype in _HALF else 4
    return (
        torch.backends.cuda.mem_efficient_sdp_enabled()
        and query.dim() == 4
        and query.dtype in (*_HALF, torch.float32)
        and query.dtype == key.dtype == value.dtype
        and query.shape[-1] % alignment == 0
        and value.shape[-1] % alignment == 0
    )


def _padded(tensor: Tensor) -> Tensor:
    """Return *tensor* with heads of a multiple of 8 elements, which the kernel takes."""
    missing = -tensor.shape[-1] % 8
    return torch.nn.functional.pad(tensor, (0, missing)) if missing else tensor


def _bias(mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Return what is added to the products, of all heads and positions."""
    if mask.dtype is torch.bool:
        zeros = torch.zeros(mask.shape, dtype=query.dtype, device=mask.device)
        mask = zeros.masked_fill(~mask, float("-inf"))
    return mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
