"""Knowledge of an overload of one of torch's operations, as far as virtual CUDA tensors need it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from collectives.virtual.computation.operations import Operation
from collectives.virtual.gpu.stock.cuda_only import WHOLE

_CHANGE_KINDS = {"resize_", "resize_as_", "set_", "set_data"}


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What is known of an overload.

    Attributes:
        communicates: it is a collective.
        decomposes: it is made of others, which come one by one.
        is_view: its results look at its first argument.
        is_free: it launches no kernel.
        computes: torch counts its arithmetic.
        convolves: it is a convolution.
        mutates: it writes into one of its arguments.
        mutates_kinds: it changes what an argument says of itself, such as its shape.
        depends_on_data: the number of its results, or of their elements, does; of one that selects by
            indices only where these are masks.
        selects: it selects by indices.
        draws: it draws random numbers.
    """

    communicates: bool
    decomposes: bool
    is_view: bool
    is_free: bool
    computes: bool
    convolves: bool
    mutates: bool
    mutates_kinds: bool
    depends_on_data: bool
    selects: bool
    draws: bool


@cache
def knowledge_of(func: Any) -> Knowledge:
    """Return what is known of the overload *func*."""
    operation = Operation.of(func)
    return Knowledge(
        operation.communicates,
        operation.decomposes and not operation.communicates and func not in WHOLE,
        func.is_view,
        operation.free or operation.communicates,
        operation.formula is not None,
        operation.convolves,
        func._schema.is_mutable,
        torch.Tag.inplace_view in func.tags or func.overloadpacket.__name__ in _CHANGE_KINDS,
        torch.Tag.dynamic_output_shape in func.tags or torch.Tag.data_dependent_output in func.tags,
        func.overloadpacket.__name__ in ("index", "index_put", "index_put_", "_index_put_impl_"),
        torch.Tag.nondeterministic_seeded in func.tags,
    )
