"""Logging data of torch's ``_get_ddp_logging_data``, with its keys: environment, buckets, times.

Source: torch/csrc/distributed/c10d/logger.cpp (set_env_variables, set_runtime_stats_and_log).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ddp.autograd.driver import TorchDriver
from ddp.buckets.torch_hooks import OURS, backend_of

if TYPE_CHECKING:
    from ddp.training.wrapped_module import WrappedModule

ENVIRONMENT = ("CUDA_VISIBLE_DEVICES", "MASTER_ADDR", "MASTER_PORT", "TORCH_DISTRIBUTED_DEBUG")
ENVIRONMENT_OF = {
    "gloo": ("GLOO_SOCKET_IFNAME", "GLOO_DEVICE_TRANSPORT"),
    "nccl": (
        "NCCL_SOCKET_IFNAME",
        "NCCL_BLOCKING_WAIT",
        "NCCL_ASYNC_ERROR_HANDLING",
        "NCCL_DEBUG",
        "NCCL_NTHREADS",
        "NCCL_IB_TIMEOUT",
    ),
}
GLOO_THREADS = 2
"""Those of a Gloo group by default."""

DTYPES = {
    torch.float16: "c10::Half",
    torch.bfloat16: "c10::BFloat16",
    torch.float32: "float",
    torch.float64: "double",
    torch.complex64: "c10::complex<float>",
    torch.complex128: "c10::complex<double>",
}


def of_model(model: WrappedModule) -> dict[str, Any]:
    """Return options, buckets and times of *model*, and the latest error, with torch's keys.

    One key is our own: ``carrier``, as of `collectives.communicators.communicator.Communicator`.
    """
    indices = [one if isinstance(one, int) else torch.device(one).index for one in model.device_ids or ()]
    rows = {
        "backend_name": torch.distributed.get_backend(model.process_group),
        "module_name": type(model.module).__name__,
        "device_ids": joined(indices),
        "output_device": indices[0] if indices else -1,
        "rank": model._communicator.rank,
        "world_size": model._communicator.world_size,
        "broadcast_buffers": int(model.forward_sync_buffers),
        "find_unused_parameters": int(model.find_unused_parameters),
        "static_graph": int(model.static_graph),
        "has_sync_bn": int(any(isinstance(layer, nn.SyncBatchNorm) for layer in model.module.modules())),
        **of_environment(model.process_group, model.device),
        **of_driver(model._driver),
    }
    if model._communicator.carrier:
        rows["carrier"] = model._communicator.carrier
    if model._joins:
        rows["join_uneven_inputs"] = 1
    error = model._driver.latest_error
    if error is not None:
        rows |= {"has_error": 1, "error": f"{type(error)}: {error}", "iteration": model._driver.times.number}
    return rows


def of_environment(group: Any, device: torch.device) -> dict[str, Any]:
    """Return what torch logs of the environment over *group*, for tensors of *device*."""
    backend = backend_of(group, device)
    if backend == OURS:  # in virtual time: under the name that the script asked for
        backend = torch.distributed.get_backend(group)
    names = [*ENVIRONMENT, *ENVIRONMENT_OF.get(backend, ())]
    data: dict[str, Any] = {name.lower(): os.environ.get(name, "N/A") for name in names}
    if backend == "gloo":
        options = getattr(group._get_backend(device), "options", None)
        data["gloo_num_threads"] = getattr(options, "_threads", GLOO_THREADS)
    return data


def of_driver(driver: TorchDriver) -> dict[str, Any]:
    """Return what torch logs of parameters, buckets and times."""
    parameters = driver.buckets.parameters
    members = driver.buckets.members
    hook = driver.in_flight.comm_hook

    rebuilt: dict[str, str] = {"rebuilt_bucket_sizes": "", "rebuilt_per_bucket_param_indices": ""}
    if driver.has_rebuilt:
        indices = [" ".join(str(index) for index in bucket) for bucket in members]
        rebuilt = {
            "rebuilt_bucket_sizes": joined(driver.buckets.sizes),
            "rebuilt_per_bucket_param_indices": joined(indices),
        }

    return {
        "bucket_sizes": joined(driver.first_sizes),
        **rebuilt,
        "prev_iteration_grad_ready_order_indices": joined(driver.ready.ready_ps),
        "dtypes": joined(sorted({dtype_name(p.dtype) for p in parameters})),
        **({} if hook is None else {"comm_hook": hook.name}),
        **driver.times.rows(),
        "bucket_cap_bytes": driver.options.limits[-1],
        "gradient_as_bucket_view": int(driver.options.as_view),
        "has_rebuilt_buckets": int(driver.has_rebuilt),
        "is_multi_device_module": int(len({p.device for p in parameters}) > 1),
        "num_buckets_reduced": len(driver.in_flight.reduced),
        "num_parameter_tensors": len(parameters),
        "total_parameter_size_bytes": nbytes(parameters),
        "unused_parameter_size": nbytes(driver.ready.unused()),
    }


def nbytes(parameters: Iterable[torch.Tensor]) -> int:
    """Return the size of all *parameters* in bytes."""
    return sum(parameter.numel() * parameter.element_size() for parameter in parameters)


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name that torch logs, which is the one in C++."""
    return DTYPES.get(dtype, str(dtype).removeprefix("torch."))


def joined(values: Iterable[object]) -> str:
    """Return values as torch writes them."""
    return ", ".join(str(value) for value in values)
