"""Device arguments of torch's own classes and functions, which get the CPU instead of CUDA devices."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed.distributed_c10d as c10d
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from collectives.virtual.devices import batch_norm
from collectives.virtual.isolation.patching import Replacement
from collectives.virtual.notices import Notices
from sim.cluster import Cluster

MAPPED = "cuda mapped to CPU"
"""The notice under which all that was mapped is listed."""


def replacements() -> Iterator[Replacement]:
    """Yield what stands for torch's own while rank threads run, and is torch's own elsewhere."""
    for module in (c10d, torch.distributed):
        yield module, "init_process_group", changed(c10d.init_process_group, _without_device_id)
    yield torch.serialization, "_get_restore_location", restoring_on_cpu
    for owner, change in (
        (DistributedDataParallel, _without_device_ids),
        (DeviceMesh, _on_cpu_mesh),
        (torch.amp.autocast_mode.autocast, _autocast_on_cpu),
        (torch.amp.GradScaler, _scaler_on_cpu),
        (DataLoader, _without_pinning),
    ):
        yield owner, "__init__", changed(owner.__init__, change)
    yield from batch_norm.replacements()


def is_cuda(device: Any) -> bool:
    """Return whether *device* means a CUDA device, as an index alone does."""
    if isinstance(device, str):
        return device.partition(":")[0] == "cuda"
    if isinstance(device, torch.device):
        return device.type == "cuda"
    return isinstance(device, int) and not isinstance(device, bool)


def changed(original: Any, change: Callable[[Notices, dict[str, Any]], None]) -> Any:
    """Return *original*, which on a rank thread gets its arguments as *change* has changed them by name."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def called(*args: Any, **options: Any) -> Any:
        rank_thread = Cluster.current()
        if rank_thread is None:
            return original(*args, **options)
        bound = signature.bind(*args, **options)
        change(Notices.of(rank_thread.cluster), bound.arguments)
        return original(*bound.args, **bound.kwargs)

    return called


def _without(options: dict[str, Any], notices: Notices, of: str, *names: str) -> None:
    for name in names:
        if options.pop(name, None):
            notices.add(MAPPED, f"{of}({name}=…)")


def _without_device_id(notices: Notices, options: dict[str, Any]) -> None:
    _without(options, notices, "init_process_group", "device_id")


def _without_device_ids(notices: Notices, options: dict[str, Any]) -> None:
    _without(options, notices, "DistributedDataParallel", "device_ids", "output_device")


def _without_pinning(notices: Notices, options: dict[str, Any]) -> None:
    _without(options, notices, "DataLoader", "pin_memory", "pin_memory_device")


def _on_cpu_mesh(notices: Notices, options: dict[str, Any]) -> None:
    if options.get("device_type") == "cuda":
        notices.add(MAPPED, "DeviceMesh")
        options["device_type"] = "cpu"


def _autocast_on_cpu(notices: Notices, options: dict[str, Any]) -> None:
    if options.get("device_type") == "cuda":
        notices.add(MAPPED, "torch.autocast")
        options["device_type"] = "cpu"
        if options.get("dtype") is None:
            options["dtype"] = torch.get_autocast_dtype("cuda")


def _scaler_on_cpu(notices: Notices, options: dict[str, Any]) -> None:
    if options.get("device", "cuda") == "cuda":
        notices.add(MAPPED, "GradScaler")
        options["device"] = "cpu"


_restore_location: Any = torch.serialization._get_restore_location


def restoring_on_cpu(map_location: Any) -> Any:
    """Return what puts a storage that is loaded in its place: as `torch.load` does, but on the CPU."""
    if Cluster.current() is None:
        return _restore_location(map_location)
    if isinstance(map_location, dict):
        map_location = {place: "cpu" if is_cuda(to) else to for place, to in map_location.items()}
    elif is_cuda(map_location):
        map_location = "cpu"
    restore = _restore_location(map_location)
    return lambda storage, place: restore(storage, "cpu" if is_cuda(place) else place)
