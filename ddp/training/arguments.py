"""Arguments of `DistributedDataParallel`, resolved: groups, devices, parameters, buffers."""

from __future__ import annotations

import warnings
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel.distributed import DistributedDataParallel as TorchDistributedDataParallel
from torch.utils import _pytree as pytree

from ddp.autograd.options import NO_LIMIT
from ddp.errors import DDPError, NotSupportedError
from ddp.reduction.bucketing import bucket_limits

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup


def resolve_group(process_group: ProcessGroup | None, device_mesh: Any, module: nn.Module) -> Any:
    """Return the group over which gradients are averaged; None is the default group.

    Raises:
        RuntimeError: both are given, or the mesh has several dimensions.
    """
    if device_mesh is None:
        return process_group
    if process_group is not None:
        raise RuntimeError("Cannot specify both process_group and device_mesh arguments.")
    if device_mesh.ndim != 1:
        raise RuntimeError(
            f"Only 1D device mesh is supported, but got {device_mesh}; take one out by its name: mesh['dp']"
        )
    if device_mesh._get_root_mesh() != device_mesh:
        from torch.distributed.tensor.parallel.ddp import _pre_dp_module_transform

        _pre_dp_module_transform(module)
    return device_mesh.get_group(mesh_dim=0)


def trainable_parameters(module: nn.Module, ignored: Collection[str]) -> dict[str, nn.Parameter]:
    """Return what is reduced, by name, in torch's order; a shared parameter counts once.

    Raises:
        DDPError: a parameter has no shape yet.
    """
    found: dict[str, nn.Parameter] = {}
    seen: set[nn.Parameter] = set()
    for prefix, submodule in module.named_modules():
        for own_name, parameter in submodule.named_parameters(recurse=False):
            name = f"{prefix}.{own_name}" if prefix else own_name
            if not parameter.requires_grad or name in ignored or parameter in seen:
                continue
            if isinstance(parameter, nn.parameter.UninitializedParameter):
                raise DDPError(
                    "Modules with uninitialized parameters can't be used with `DistributedDataParallel`: "
                    f"parameter {name} has no shape yet; run the module forward once before wrapping it"
                )
            seen.add(parameter)
            found[name] = parameter
    return found


def check_parameters(
    module: nn.Module, parameters: dict[str, nn.Parameter], delayed: Collection[str]
) -> None:
    """Check that there is something to train, and that it can be trained here.

    Raises:
        DDPError: no parameter requires a gradient.
        ValueError: parameters are on devices of several types.
    """
    if not parameters and not delayed:
        raise DDPError(
            "DistributedDataParallel is not needed when a module doesn't have any parameter that requires a "
            f"gradient; {type(module).__name__} has none"
        )
    types = {parameter.device.type for parameter in module.parameters()}
    if len(types) > 1:
        raise ValueError(
            f"the parameters of a module must be on devices of one type: {', '.join(sorted(types))}; move "
            "the module to one of them"
        )


def check_batch_norm(wrapped: Any, module: nn.Module) -> None:
    """Check that layers of `SyncBatchNorm` in *module* work where *wrapped* computes, as torch's class does.

    Raises:
        ValueError: they need a GPU, and it is a CPU.
    """
    torch_class: Any = TorchDistributedDataParallel
    try:
        torch_class._passing_sync_batchnorm_handle(wrapped, module)
    except ValueError as error:
        layers = [name for name, layer in module.named_modules() if isinstance(layer, nn.SyncBatchNorm)]
        raise ValueError(
            f"{error}: {', '.join(name or 'the module itself' for name in layers)} is a SyncBatchNorm, which "
            "needs a GPU; use BatchNorm here"
        ) from None


def sparse_parameters(module: nn.Module, parameters: dict[str, nn.Parameter]) -> frozenset[int]:
    """Return the indices of the parameters whose layers say that their gradients are sparse."""
    sparse = {
        id(layer.weight)
        for layer in module.modules()
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.sparse
    }
    return frozenset(index for index, p in enumerate(parameters.values()) if id(p) in sparse)


def first_and_later_limits(
    bucket_cap_mb: float | None, bucket_cap_mb_list: list[float] | None, find_unused: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the limits of the buckets of the first pass, and of all later ones.

    In the first pass the order of gradients is not known yet, so all travel together; unless the
    user named the size of each bucket, or the buckets are never built anew.
    """
    later = bucket_limits(bucket_cap_mb, bucket_cap_mb_list)
    if bucket_cap_mb is None and not bucket_cap_mb_list:
        later = (dist._DEFAULT_FIRST_BUCKET_BYTES, *later[1:])  # type: ignore[attr-defined]
    return (later if bucket_cap_mb_list or find_unused else (NO_LIMIT,)), later


def resolve_buffer_sync(
    broadcast_buffers: bool | None, forward_sync_buffers: bool | None
) -> tuple[bool, bool]:
    """Return whether to broadcast buffers before forward passes, and whether when wrapping."""
    if broadcast_buffers is not None:
        warnings.warn(
            "`broadcast_buffers` is deprecated, use `forward_sync_buffers`, which syncs buffers at "
            "wrapping in any case and wins where both are given",
            FutureWarning,
            stacklevel=3,
        )
    if forward_sync_buffers is not None:
        return forward_sync_buffers, True
    effective = broadcast_buffers is not False
    return effective, effective


def resolve_input_device(
    module: nn.Module,
    device: torch.device,
    device_ids: list[int | torch.device] | None,
    output_device: int | torch.device | None,
    is_mapped: bool,
) -> torch.device | None:
    """Return the device to which inputs are moved, if the user named one.

    *is_mapped*: a CPU may stand for the accelerator that is named, as it does in virtual time.

    Raises:
        ValueError: it is not the device of the module.
    """
    if not device_ids:
        if output_device is not None:
            raise ValueError("output_device needs device_ids; leave both out, or give the module's device")
        return None
    if is_mapped and device.type == "cpu":
        return None
    devices = {parameter.device for parameter in module.parameters()}
    if len(device_ids) != 1 or device.type == "cpu" or len(devices) > 1:
        raise ValueError(
            f"device_ids must be None, or the one device of a module on an accelerator; got {device_ids} "
            f"for a module on {', '.join(map(str, devices))}"
        )
    for named in (device_ids[0], device_ids[0] if output_device is None else output_device):
        if (torch.device(device.type, named) if isinstance(named, int) else torch.device(named)) != device:
            raise ValueError(f"device_ids and output_device must be the module's, {device}; got {named}")
    return device


def move_inputs(values: Any, device: torch.device) -> Any:
    """Return *values* with all tensors on *device*."""
    return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.to(device, non_blocking=True), values)


def check_delayed(named: Any, trigger: Any) -> None:
    """Check that parameters to delay and the parameter that ends the delay come together.

    Raises:
        ValueError: one of them is missing.
    """
    if (named is None) != (trigger is None):
        raise ValueError(
            "delay_all_reduce_named_params and param_to_hook_all_reduce belong together; give both or none"
        )


def refuse_elsewhere(strategy: object, **features: object) -> None:
    """Refuse features that need averaged gradients behind each backward pass, where there are none.

    Raises:
        NotSupportedError: one of them is asked for.
    """
    if getattr(strategy, "whole_buckets", True):
        return
    for name, value in features.items():
        if value:
            raise NotSupportedError(
                f"{name} needs gradients that are averaged when the backward pass returns, which strategy "
                f"{getattr(strategy, 'name', strategy)} does not leave; use strategy='wait_free'"
            )
