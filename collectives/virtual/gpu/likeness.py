"""Likenesses: virtual tensors that are as large as tensors of the CPU, made without asking for shapes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from collectives.virtual.gpu.values import is_plain, value_of

_CPU, _META = torch.device("cpu"), torch.device("meta")
_CONTAINERS = (list, tuple)


class Likeness:
    """Virtual tensors of one FakeTensorMode.

    Args:
        mode: whose they are.
    """

    def __init__(self, mode: FakeTensorMode) -> None:
        self._mode = mode
        sample = FakeTensor(mode, torch.empty(0, device=_META), _CPU)
        self._attributes = dict(sample.__dict__)
        self._guard_pointer = (
            torch._C._set_warn_deprecated_on_mutable_data_ptr
            if mode._allow_unsafe_data_ptr_access
            else torch._C._set_throw_on_mutable_data_ptr
        )

    def of(self, tensor: Tensor, device: torch.device, base: FakeTensor | None = None) -> FakeTensor:
        """Return a tensor on *device* that is as *tensor* is.

        Args:
            tensor: of the CPU.
            device: with an index.
            base: of whose value *tensor* is a view, as the result is of *base*; None: of nothing.
        """
        if tensor.layout is not torch.strided:
            return FakeTensor(self._mode, tensor.to(_META), device)
        whole = None if base is None else value_of(base)
        if base is None or whole is None:
            empty = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=_META)
        else:
            size = tensor.element_size()
            before = (
                base.storage_offset() * base.element_size() - whole.storage_offset() * whole.element_size()
            )
            offset = (before + tensor.storage_offset() * size) // size
            empty = torch.empty(0, dtype=tensor.dtype, device=_META)
            empty.set_(base.untyped_storage(), offset, tensor.shape, tensor.stride())
        if tensor.is_conj():
            torch._C._set_conj(empty, True)
        if tensor.is_neg():
            torch._C._set_neg(empty, True)
        return self.made(empty, device)

    def made(self, empty: Tensor, device: torch.device, kind: int | None = None) -> FakeTensor:
        """Return *empty*, of the meta device, as a tensor on *device*; *kind*: its number in `shapes`."""
        made: Any = Tensor._make_subclass(
            FakeTensor, empty, False, dispatch_device=True, device_for_backend_keys=device
        )
        self._guard_pointer(made)
        made.__dict__.update(self._attributes, _fake_device=device, _kind=kind)
        return made  # type: ignore[no-any-return]

    def faked(self, args: Any) -> Any:
        """Return arguments with tensors without data in the places of plain ones of the CPU."""
        return tuple(map(self._fake_of, args))

    def _fake_of(self, value: Any) -> Any:
        if is_plain(value) and value.device.type == "cpu":
            return self.of(value, _CPU)
        if type(value) in _CONTAINERS and any(map(is_plain, value)):
            return type(value)(map(self._fake_of, value))
        return value
