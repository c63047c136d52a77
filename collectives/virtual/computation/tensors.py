"""Tensors in nested values, such as arguments of an operation: which there are, and what bytes they hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield *value* if it is a tensor, or the tensors in the lists and dictionaries that it is made of."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors_in(part)
    elif isinstance(value, dict):
        for part in value.values():
            yield from tensors_in(part)


def nbytes_of(value: Any) -> int:
    """Return how many bytes all tensors in *value* hold; sparse ones, what they say is there."""
    if isinstance(value, torch.Tensor):
        if value.is_sparse:
            return nbytes_of((value._indices(), value._values()))
        return value.numel() * value.element_size()
    if isinstance(value, (list, tuple)):
        return sum(map(nbytes_of, value))
    return 0
