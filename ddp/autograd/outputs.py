"""Tensors in nested containers: what goes into a module, and what comes out of it.

Of a remote reference only its owner knows the tensors; whoever holds it elsewhere runs no backward pass here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import torch
from torch.distributed import rpc
from torch.utils import _pytree as pytree

REFERENCE: tuple[type, ...] = (rpc.RRef,) if rpc.is_available() else ()


def move(values: Any, device: torch.device) -> Any:
    """Return *values* with all tensors on *device*."""
    return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(device, non_blocking=True), values)


def tensors_of(output: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in nested containers, dataclasses and remote references that are owned here.

    Classes derived from dict, list and tuple are leaves to pytree, and containers here, as in torch's DDP.
    """
    for leaf in pytree.tree_leaves(output):
        if isinstance(leaf, torch.Tensor):
            yield leaf
        elif isinstance(leaf, dict):
            yield from tensors_of(list(leaf.values()))
        elif isinstance(leaf, list | tuple):
            yield from tensors_of(list(leaf))
        elif isinstance(leaf, REFERENCE):
            if leaf.is_owner():  # type: ignore[attr-defined]
                yield from tensors_of(leaf.local_value())  # type: ignore[attr-defined]
        elif dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            for field in dataclasses.fields(leaf):
                yield from tensors_of(getattr(leaf, field.name))
