"""SyncBatchNorm on the CPU.  Torch has its kernels for GPUs only; here are their formulas.

What is communicated, when and how is torch's own (`torch.nn.modules._functions.SyncBatchNorm`).

Source: Ioffe and Szegedy, "Batch normalization", ICML 2015, section 3; of variances of parts, Chan,
Golub and LeVeque, "Algorithms for computing the sample variance", 1983, equation 2.1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import SyncBatchNorm
from torch.nn.modules._functions import SyncBatchNorm as Synchronized
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parallel import DistributedDataParallel

from collectives.virtual.isolation.patching import Replacement, on_ranks


def replacements() -> Iterator[Replacement]:
    """Yield what lets the layer work on rank threads, and is torch's own elsewhere."""
    for name, function in FORMULAS.items():
        yield torch, name, _on_ranks(getattr(torch, name), function)
    yield SyncBatchNorm, "forward", _on_ranks(SyncBatchNorm.forward, _forward)
    check = DistributedDataParallel._passing_sync_batchnorm_handle
    accept: Callable[..., None] = lambda module, wrapped: None  # noqa: E731
    yield DistributedDataParallel, "_passing_sync_batchnorm_handle", _on_ranks(check, accept)


def _on_ranks(original: Any, function: Callable[..., Any]) -> Any:
    return on_ranks(original, lambda _, *args, **options: function(*args, **options))


def _forward(layer: Any, tensor: Tensor) -> Tensor:
    """Do what ``SyncBatchNorm.forward`` does, whatever the device."""
    group = layer.process_group or dist.group.WORLD
    if not (layer.training and dist.is_initialized()) or dist.get_world_size(group) == 1:
        output: Tensor = _BatchNorm.forward(layer, tensor)
        return output
    layer._check_input_dim(tensor)
    layer._check_non_zero_input_channels(tensor)
    running_mean = running_var = None
    momentum = layer.momentum or 0.0

    if layer.track_running_stats:
        running_mean, running_var = layer.running_mean, layer.running_var
        layer.num_batches_tracked.add_(1)
        if layer.momentum is None:
            momentum = 1.0 / layer.num_batches_tracked.item()

    result: Tensor = Synchronized.apply(
        tensor,
        layer.weight,
        layer.bias,
        running_mean,
        running_var,
        layer.eps,
        momentum,
        group,
        dist.get_world_size(group),
    )

    return result


def _of_channels(tensor: Tensor, like: Tensor) -> Tensor:
    """Return *tensor*, of a value for each channel, so that it is broadcast over *like*."""
    return tensor.view(1, -1, *[1] * (like.dim() - 2))


def _sum(tensor: Tensor) -> Tensor:
    """Return the sum over all but channels."""
    return tensor.sum([axis for axis in range(tensor.dim()) if axis != 1])


def _stats(tensor: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    tensor = tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor
    count = tensor.numel() // tensor.size(1)
    mean = _sum(tensor) / count
    variance = _sum((tensor - _of_channels(mean, tensor)) ** 2) / count
    return mean, (variance + eps).rsqrt()


def _gather_stats(
    tensor: Tensor,
    means: Tensor,
    invstds: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    counts: Tensor,
) -> tuple[Tensor, Tensor]:
    parts = counts.to(means.dtype)[:, None]
    total = parts.sum()
    mean = (means * parts).sum(0) / total
    variance = ((invstds**-2 - eps + (means - mean) ** 2) * parts).sum(0) / total
    if running_mean is not None and running_var is not None:
        running_mean.lerp_(mean.to(running_mean.dtype), momentum)
        running_var.lerp_((variance * total / (total - 1)).to(running_var.dtype), momentum)
    return mean, (variance + eps).rsqrt()


def _normalise(
    tensor: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, invstd: Tensor, eps: float
) -> Tensor:
    result = (tensor - _of_channels(mean, tensor)) * _of_channels(invstd, tensor)
    if weight is not None and bias is not None:
        result = result * _of_channels(weight, tensor) + _of_channels(bias, tensor)
    return result.to(tensor.dtype)


def _backward_reduce(
    grad: Tensor, tensor: Tensor, mean: Tensor, invstd: Tensor, weight: Tensor | None, *needed: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    sum_dy = _sum(grad.to(mean.dtype))
    sum_dy_xmu = _sum(grad * (tensor - _of_channels(mean, tensor)))
    kind = mean.dtype if weight is None else weight.dtype
    return sum_dy, sum_dy_xmu, (sum_dy_xmu * invstd).to(kind), sum_dy.to(kind)


def _backward(
    grad: Tensor,
    tensor: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    sum_dy: Tensor,
    sum_dy_xmu: Tensor,
    counts: Tensor,
) -> Tensor:
    total = counts.sum()
    slope = _of_channels(invstd**2 * sum_dy_xmu / total, tensor)
    result = grad - _of_channels(sum_dy / total, tensor) - (tensor - _of_channels(mean, tensor)) * slope
    result = result * _of_channels(invstd if weight is None else invstd * weight, tensor)
    return result.to(tensor.dtype)


FORMULAS: dict[str, Callable[..., Any]] = {
    "batch_norm_stats": _stats,
    "batch_norm_gather_stats_with_counts": _gather_stats,
    "batch_norm_elemt": _normalise,
    "batch_norm_backward_reduce": _backward_reduce,
    "batch_norm_backward_elemt": _backward,
}
"""Operations that torch has for GPUs only, by name."""
