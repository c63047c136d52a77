"""Function mode of a rank's thread, which maps devices among the arguments of torch's functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from collectives.virtual.devices.arguments import MAPPED, is_cuda
from collectives.virtual.notices import Notices

_CPU = torch.device("cpu")


class DeviceMode(TorchFunctionMode):
    """Maps CUDA devices to the CPU, for the thread on which it is active."""

    def __init__(self, notices: Notices) -> None:
        super().__init__()
        self._notices = notices

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if kwargs and ("device" in kwargs or "pin_memory" in kwargs):
            kwargs = dict(kwargs)
            if "device" in kwargs and is_cuda(kwargs["device"]):
                self._notices.add(MAPPED, f"{func.__name__}(device=…)")
                kwargs["device"] = _CPU
            kwargs.pop("pin_memory", None)
        call = _CALLS_WITH_DEVICE.get(func)
        if call is not None:
            return call(self, func, args, kwargs or {})
        return func(*args, **kwargs) if kwargs else func(*args)

    def new_device(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the CPU where a CUDA device, or a numbered CPU, is made."""
        kind = args[0] if args else kwargs.get("type", kwargs.get("device"))
        if is_cuda(kind):
            self._notices.add(MAPPED, "torch.device")
            return _CPU
        if isinstance(kind, str) and kind.partition(":")[0] == "cpu":
            return _CPU
        return func(*args, **kwargs)

    def same_tensor(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return the tensor itself, which is where it is to go."""
        self._notices.add(MAPPED, f"Tensor.{func.__name__}")
        return args[0]

    def nothing(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Do nothing."""

    def tensor_type(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Take ``torch.cuda.FloatTensor`` for ``torch.FloatTensor``."""
        names = (own.replace("torch.cuda.", "torch.") if isinstance(own, str) else own for own in args)
        return func(*names, **kwargs)

    def moved(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Move to the CPU what was to be moved to a CUDA device."""
        num_values = 1 if func is torch.as_tensor else 0  # its first argument may be a number
        values, places = args[:num_values], args[num_values:]
        if any(map(is_cuda, places)):
            self._notices.add(MAPPED, "Module.to" if func is _parse_to else f"Tensor.{func.__name__}")
            places = tuple(_CPU if is_cuda(place) else place for place in places)
        return func(*values, *places, **kwargs)


_parse_to: Any = torch._C._nn._parse_to
"""Reads the arguments of ``Module.to``."""

_CALLS_WITH_DEVICE: Mapping[Any, Callable[[DeviceMode, Any, tuple[Any, ...], dict[str, Any]], Any]] = {
    torch.device: DeviceMode.new_device,
    torch.Tensor.cuda: DeviceMode.same_tensor,
    torch.Tensor.pin_memory: DeviceMode.same_tensor,
    torch.Tensor.record_stream: DeviceMode.nothing,
    torch.Tensor.type: DeviceMode.tensor_type,
    torch.Tensor.to: DeviceMode.moved,
    torch.as_tensor: DeviceMode.moved,
    _parse_to: DeviceMode.moved,
}
