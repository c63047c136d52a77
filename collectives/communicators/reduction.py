"""Reductions of two tensors into one, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, Literal, TypeAlias

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import is_fake

from collectives.communicators.dispatch_modes import hidden_from_modes
from collectives.errors import NotSupportedError

ReduceOp: TypeAlias = Literal["sum", "avg", "product", "min", "max", "band", "bor", "bxor"]

Reduce: TypeAlias = Callable[[torch.Tensor, torch.Tensor], Any]


def _into(function: Callable[..., Any], accumulator: torch.Tensor, incoming: torch.Tensor) -> None:
    function(accumulator, incoming, out=accumulator)


REDUCE: Mapping[str, Reduce] = {
    "sum": torch.Tensor.add_,
    "avg": torch.Tensor.add_,
    "product": torch.Tensor.mul_,
    "min": partial(_into, torch.minimum),
    "max": partial(_into, torch.maximum),
    "band": torch.Tensor.bitwise_and_,
    "bor": torch.Tensor.bitwise_or_,
    "bxor": torch.Tensor.bitwise_xor_,
}
"""Reduces the second tensor into the first, in place.  An average is a sum, divided at the end."""

TORCH_OP: Mapping[str, Any] = {
    "sum": dist.ReduceOp.SUM,
    "avg": dist.ReduceOp.AVG,
    "product": dist.ReduceOp.PRODUCT,
    "min": dist.ReduceOp.MIN,
    "max": dist.ReduceOp.MAX,
    "band": dist.ReduceOp.BAND,
    "bor": dist.ReduceOp.BOR,
    "bxor": dist.ReduceOp.BXOR,
}
"""The same by torch's names."""


def op_of(torch_op: Any) -> ReduceOp:
    """Return the name of one of torch's operations.

    Raises:
        NotSupportedError: we have none like it.
    """
    plain = getattr(torch_op, "op", torch_op)
    for name, known in TORCH_OP.items():
        if plain == known:
            return name  # type: ignore[return-value]
    raise NotSupportedError(f"no reduction by {torch_op}; there are: {', '.join(TORCH_OP)}")


def factor_of(torch_op: Any) -> Any:
    """Return by what ``PREMUL_SUM`` multiplies what a rank gives, a number or a tensor; None: by nothing."""
    return torch_op.__getstate__()[1] if torch_op == dist.ReduceOp.PREMUL_SUM else None


def has_fractions(dtype: torch.dtype) -> bool:
    """Return whether averages of *dtype* have fractions; of integers they go towards 0."""
    return dtype.is_floating_point or dtype.is_complex


def check_reduction(tensor: torch.Tensor, op: str) -> None:
    """Refuse what cannot be reduced, before a message is sent.

    Raises:
        NotSupportedError: the operation, the dtype for it, or the layout.
    """
    if op not in REDUCE:
        raise NotSupportedError(f"op must be one of {', '.join(REDUCE)}; got {op!r}")
    if op == "avg" and tensor.dtype == torch.bool:
        raise NotSupportedError("torch.bool has no average; use another dtype, or op='bor'")
    if tensor.layout != torch.strided:
        raise NotSupportedError(f"layout {tensor.layout} cannot be reduced; use a dense tensor")
    fake = type(tensor) is not torch.Tensor and is_fake(tensor)
    if not _works(op, tensor.dtype, "meta" if fake else tensor.device.type):
        raise NotSupportedError(f"torch has no {op} of {tensor.dtype} on {tensor.device.type}")


@cache
@hidden_from_modes
def _works(op: str, dtype: torch.dtype, device_type: str) -> bool:
    one = torch.zeros(1, dtype=dtype, device=device_type)
    try:
        REDUCE[op](one, one.clone())
    except (RuntimeError, NotImplementedError):
        return False
    return True
