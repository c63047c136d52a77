"""Saving and loading of virtual CUDA tensors.

A saved tensor is its value on the CPU.  Without data it is one of the meta device: its shape alone, which can
be loaded and copied to the device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from collectives.virtual.devices.arguments import is_cuda
from collectives.virtual.gpu.values import value_of


def reduced(tensor: Tensor, protocol: Any) -> Any:
    """Return what a pickle has of a virtual tensor."""
    plain = tensor.detach().cpu()
    if value_of(tensor) is None:
        plain = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
    return plain.requires_grad_(tensor.requires_grad).__reduce_ex__(protocol)


def loading(load: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``torch.load``, which puts tensors on a virtual device where that is asked for."""

    def loaded(devices: object, file: Any, map_location: Any = None, *rest: Any, **options: Any) -> Any:
        if map_location is None or not is_cuda(map_location):
            return load(file, map_location, *rest, **options)
        found = load(file, lambda storage, place: storage, *rest, **options)
        return tree_map_only(Tensor, lambda tensor: tensor.to(map_location), found)

    return loaded
