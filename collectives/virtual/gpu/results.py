"""Results of ranks after their run: tensors of a device that there was meanwhile are of the CPU again."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map

from collectives.virtual.gpu.accelerator import CudaDevices, InstantGpu
from collectives.virtual.gpu.values import value_of


def plain_results(result: Any) -> Any:
    """Return what a rank has left, with tensors of the CPU where it had virtual ones with data.

    Those in modules and DTensors are replaced there.  Where a GPU was modelled nothing changes: what its
    tensors are is part of the answer.
    """
    devices = CudaDevices.here()
    if devices is None or not isinstance(devices.gpu, InstantGpu):
        return result
    with _disable_current_modes():
        return tree_map(_plain, result)


def _plain(leaf: Any) -> Any:
    if isinstance(leaf, FakeTensor):
        return _plain_tensor(leaf)
    if isinstance(leaf, nn.Module):
        for module in leaf.modules():
            for tensors in (module._parameters, module._buffers):
                tensors.update({name: _plain(tensor) for name, tensor in tensors.items()})
    elif isinstance(leaf, Tensor) and isinstance(getattr(leaf, "_local_tensor", None), FakeTensor):
        leaf._local_tensor = _plain_tensor(leaf._local_tensor)  # type: ignore[attr-defined]
    return leaf


def _plain_tensor(tensor: Any) -> Tensor:
    value = value_of(tensor)
    if value is None:
        return tensor  # type: ignore[no-any-return]
    value = value.detach()
    plain = nn.Parameter(value, False) if isinstance(tensor, nn.Parameter) else value
    with torch.inference_mode(plain.is_inference()):
        plain.requires_grad_(tensor.requires_grad)
    if tensor.is_leaf and tensor.grad is not None:
        plain.grad = _plain(tensor.grad)
    return plain
