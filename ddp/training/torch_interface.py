"""Private names of torch's class that its tests, and code of users, call on a wrapped module.

Each function stands in the class under torch's name, some as properties.  Those that only look at the module
are torch's own.

Source: torch/nn/parallel/distributed.py of torch 2.13.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parallel.distributed import DistributedDataParallel as TorchDistributedDataParallel

from ddp.reduction.bucketing import DEFAULT_CAP_MB, MIB
from ddp.training.reducer_view import ReducerView
from ddp.training.replication import broadcast_from

if TYPE_CHECKING:
    from ddp.training.wrapped_module import WrappedModule

TORCH: Any = TorchDistributedDataParallel

build_params_for_reducer = TORCH._build_params_for_reducer
build_debug_param_to_name_mapping = TORCH._build_debug_param_to_name_mapping
get_data_parallel_params = TORCH._get_data_parallel_params
set_params_and_buffers_to_ignore_for_model = TORCH._set_params_and_buffers_to_ignore_for_model


def reducer(model: WrappedModule) -> ReducerView:
    """Return what torch's class calls its reducer; see `ddp.training.reducer_view`."""
    return ReducerView(model)


def logger(model: WrappedModule) -> None:
    """Return no logger of torch's; logging data are those of ``_get_ddp_logging_data``."""


def device_type(model: WrappedModule) -> str:
    """Return the type of the device of the parameters."""
    return model.device.type


def modules_buffers(model: WrappedModule) -> list[torch.Tensor]:
    """Return the buffers of the module that are synchronized."""
    return list(model._buffers_of_module.collect().values())


def named_module_buffers(model: WrappedModule) -> dict[str, torch.Tensor]:
    """Return the same by name."""
    return model._buffers_of_module.collect()


def bucket_bytes_cap(model: WrappedModule) -> int:
    """Return the size in bytes at which a bucket is closed, or all but the first are."""
    caps = model.bucket_cap_mb_list or [
        DEFAULT_CAP_MB if model.bucket_cap_mb is None else model.bucket_cap_mb
    ]
    return int(caps[-1] * MIB)


def bucket_bytes_cap_list(model: WrappedModule) -> list[int]:
    """Return the sizes of ``bucket_cap_mb_list`` in bytes; none where it is not given."""
    return [int(cap * MIB) for cap in model.bucket_cap_mb_list or ()]


def assign_modules_buffers(model: WrappedModule) -> None:
    """Do nothing: buffers are collected whenever somebody asks for them."""


def log_and_throw(model: WrappedModule, err_type: type[Exception], err_msg: str) -> None:
    """Raise an error, and have it in the logging data."""
    raise model._logged(err_type(err_msg))


def default_broadcast_coalesced(
    model: WrappedModule,
    bufs: Sequence[torch.Tensor] | None = None,
    bucket_size: int | None = None,
    authoritative_rank: int = 0,
) -> None:
    """Broadcast *bufs*, by default the module's buffers, from one rank, *bucket_size* bytes a message."""
    tensors = modules_buffers(model) if bufs is None else bufs
    size = model.broadcast_bucket_size if bucket_size is None else bucket_size
    broadcast_from(authoritative_rank, tensors, model._communicator, size)


def distributed_broadcast_coalesced(
    model: WrappedModule,
    tensors: Sequence[torch.Tensor],
    buffer_size: int,
    authoritative_rank: int = 0,
) -> None:
    """Broadcast *tensors* from one rank, *buffer_size* bytes a message."""
    broadcast_from(authoritative_rank, tensors, model._communicator, buffer_size)
