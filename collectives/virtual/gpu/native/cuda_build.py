"""CUDA in C++ for the time of a run: a device guard for the autograd engine, and hooks that say it is there.

Torch's engine asks the guard of a device for its index and its stream whenever a node is made, and ends the
process where no guard is registered.  Guards are told from devices by a registry that torch exports.  Torch
has one for tensors without data; a copy of it, which knows the current device of a rank, answers for CUDA.
The hooks are one object of the process, whose table is changed.

Source: torch 2.13, c10/core/impl/{DeviceGuardImplInterface,FakeGuardImpl}.h,
ATen/detail/CUDAHooksInterface.h, torch/csrc/autograd/{input_metadata,engine}.cpp.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator
from typing import Any

import torch

from collectives.errors import NotSupportedError
from collectives.virtual.gpu.native.vtables import Table, library, order_of, pointer_at

_CUDA, _META = 1, 14
"""`c10::DeviceType`, by which the registry lists guards."""
_NUM_TYPES = 32

_GUARD = ("c10/core/impl/DeviceGuardImplInterface.h",)
_HOOKS = ("ATen/detail/AcceleratorHooksInterface.h", "ATen/detail/CUDAHooksInterface.h")

_this = ctypes.c_void_p
_count = ctypes.CFUNCTYPE(ctypes.c_int8, _this)
_device = ctypes.CFUNCTYPE(ctypes.c_int16, _this)
_nothing = ctypes.CFUNCTYPE(None, _this)
_flag = ctypes.CFUNCTYPE(ctypes.c_bool, _this)
_flag_of = ctypes.CFUNCTYPE(ctypes.c_bool, _this, ctypes.c_int8)


class _Guard:
    """A device guard for CUDA, which stays in place once it is: a tensor may outlive its run."""

    def __init__(self, current: Callable[[], int]) -> None:
        self.current = current
        registry = (ctypes.c_void_p * _NUM_TYPES).in_dll(
            library("c10"), "_ZN3c104impl26device_guard_impl_registryE"
        )
        order = order_of(*_GUARD)
        meta = registry[_META]
        assert meta is not None

        self._none = Table(meta, order, {"deviceCount": _count(lambda this: 0)})
        self._instance_of_none = (ctypes.c_void_p * 2)(self._none.address, 0)
        registry[_CUDA] = ctypes.addressof(self._instance_of_none)
        torch._C._ensureCUDADeviceGuardSet()  # puts its own in the place of one that has no devices
        without_data = registry[_CUDA]
        assert without_data is not None

        # A `c10::Device` lies in a register: its type, then its index.
        packed = _device(lambda this: _CUDA | (self.current() & 0xFF) << 8)
        table = Table(without_data, order, {"getDevice": packed})
        self._table = table
        self._instance = (ctypes.c_void_p * 2)(table.address, 0)
        registry[_CUDA] = ctypes.addressof(self._instance)


_guards: list[_Guard] = []


@contextlib.contextmanager
def cuda_is_there(current: Callable[[], int], num_devices: Callable[[], int]) -> Iterator[None]:
    """Let C++ believe in CUDA devices while the body runs.

    Args:
        current: returns the index of the current device of the calling thread.
        num_devices: returns how many devices the calling thread has; 0 where there is no CUDA.

    Raises:
        NotSupportedError: this torch's tables of functions are not as they are known.
    """
    if not _guards:
        _guards.append(_Guard(current))
    _guards[0].current = current

    hooks = _hooks_address()
    original = pointer_at(hooks)
    table = Table(
        hooks,
        order_of(*_HOOKS),
        {
            "init": _nothing(lambda this: None),
            "isBuilt": _flag(lambda this: num_devices() > 0),
            "isAvailable": _flag(lambda this: num_devices() > 0),
            "deviceCount": _count(lambda this: num_devices()),
            "getCurrentDevice": _count(lambda this: current()),
            "hasPrimaryContext": _flag_of(lambda this, index: True),
        },
    )
    slot = ctypes.c_void_p.from_address(hooks)
    slot.value = table.address
    try:
        yield
    finally:
        slot.value = original


def _hooks_address() -> int:
    try:
        get: Any = library("torch_cpu")._ZN2at6detail12getCUDAHooksEv
    except AttributeError:
        raise NotSupportedError(
            "virtual CUDA devices need torch's hooks of CUDA, which this build does not export"
        ) from None
    get.restype = ctypes.c_void_p
    address: int = get()
    return address
