"""Saving and loading of virtual CUDA tensors: what is saved on a device is loaded onto it, as on a real one.

A file has a tensor's value, and the name of its device as the place of its storage.  Without data a tensor is
one of the meta device there: its shape alone, which can be loaded and copied to the device.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_map_only

from collectives.virtual.gpu.accelerator import CudaDevices, number_of
from collectives.virtual.gpu.data_dependent import on_host
from collectives.virtual.gpu.values import set_value, value_of
from collectives.virtual.isolation.patching import Replacement

_PLACE = "_virtual_device"
"""Attribute of a storage of the CPU with the data of a tensor of that device."""


def replacements() -> Iterator[Replacement]:
    """Yield what stands in torch for what saves and loads tensors."""
    yield FakeTensor, "__reduce_ex__", _reduced
    yield torch, "load", _load
    yield torch.serialization, "location_tag", _place_of
    yield torch.serialization, "_get_restore_location", _restoring
    yield torch.UntypedStorage, "cuda", _to_device
    yield torch._utils, "_rebuild_tensor", _rebuilt


def _reduced(tensor: Tensor, protocol: Any) -> Any:
    """Return what a pickle has of a virtual tensor."""
    if isinstance(tensor, torch.nn.Parameter):
        no_hooks: OrderedDict[Any, Any] = OrderedDict()
        return torch._utils._rebuild_parameter, (tensor.detach(), tensor.requires_grad, no_hooks)
    plain = on_host(tensor)
    if plain is None or value_of(tensor) is None:
        plain = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
    elif tensor.is_cuda:
        setattr(plain.untyped_storage(), _PLACE, tensor.device)
    return plain.detach().requires_grad_(tensor.requires_grad).__reduce_ex__(protocol)


_location_tag: Callable[[Any], str] = torch.serialization.location_tag
_restore_location: Any = torch.serialization._get_restore_location
_rebuild: Callable[..., Tensor] = torch._utils._rebuild_tensor
_cuda: Any = torch.UntypedStorage.cuda
_torch_load: Callable[..., Any] = torch.load


def _place_of(storage: Any) -> str:
    """Return what a file says of the place of *storage*."""
    place = getattr(storage, _PLACE, None)
    return _location_tag(storage) if place is None else str(place)


def _restoring(map_location: Any) -> Callable[[Any, str], Any]:
    """Return what gives a storage that is loaded its place: a device of the rank's, if it has any."""
    if CudaDevices.here() is None:
        return _restore_location(map_location)  # type: ignore[no-any-return]

    def restored(storage: Any, place: str) -> Any:
        asked = map_location
        if isinstance(map_location, dict):
            asked = map_location.get(place, place)
        elif callable(map_location):
            found = map_location(storage, place)
            if found is not None:
                return found
            asked = place
        elif map_location is None:
            asked = place
        return _to_device(storage, asked) if is_cuda(asked) else _restore_location(asked)(storage, place)

    return restored


def is_cuda(device: Any) -> bool:
    """Return whether *device* means a CUDA device, as an index alone does."""
    if isinstance(device, str):
        return device.partition(":")[0] == "cuda"
    if isinstance(device, torch.device):
        return device.type == "cuda"
    return isinstance(device, int) and not isinstance(device, bool)


def _to_device(storage: Any, device: Any = None, *args: Any, **options: Any) -> Any:
    """Return *storage*, of the CPU, with the note that tensors made of it are on *device*."""
    devices = CudaDevices.here()
    if devices is None:
        return _cuda(storage, device, *args, **options)
    place = torch.device("cuda" if device is None else device)
    index = devices.index if place.index is None else number_of(place.index)
    setattr(storage, _PLACE, torch.device("cuda", index))
    return storage


def _rebuilt(storage: Any, offset: int, size: Any, stride: Any) -> Tensor:
    """Return a tensor of what was loaded; a virtual one has it as its value, also if it is read later."""
    plain = _rebuild(storage, offset, size, stride)
    place = getattr(storage._untyped_storage, _PLACE, None)
    if place is None or CudaDevices.here() is None:
        return plain
    made = torch.empty_strided(plain.shape, plain.stride(), dtype=plain.dtype, device=place)
    made.copy_(plain)
    if value_of(made) is not None:
        set_value(made, plain)
    return made


def _load(file: Any, map_location: Any = None, *rest: Any, **options: Any) -> Any:
    """Load what ``torch.load`` does; tensors without data are put on a device if that is asked for."""
    found = _torch_load(file, map_location, *rest, **options)
    if CudaDevices.here() is None or map_location is None or not is_cuda(map_location):
        return found
    return tree_map_only(Tensor, lambda tensor: tensor.to(map_location) if tensor.is_meta else tensor, found)
