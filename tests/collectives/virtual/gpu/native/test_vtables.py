"""Tables of virtual functions: their order by torch's headers, and calls through them."""

import ctypes

import pytest

from collectives.errors import NotSupportedError
from collectives.virtual.gpu.native import self_test
from collectives.virtual.gpu.native.vtables import Table, library, order_of, pointer_at


def guard_of_meta() -> int:
    """Return the address of the guard that does nothing."""
    registry = (ctypes.c_void_p * 32).in_dll(library("c10"), "_ZN3c104impl26device_guard_impl_registryE")
    return registry[14] or 0


def test_the_order_is_that_of_the_declarations_with_two_entries_for_a_destructor():
    guard = order_of("c10/core/impl/DeviceGuardImplInterface.h")
    hooks = order_of("ATen/detail/AcceleratorHooksInterface.h", "ATen/detail/CUDAHooksInterface.h")

    assert guard[:3] == ["type", "exchangeDevice", "getDevice"]
    assert guard[-2:] == ["destroy", "delete"]
    assert hooks[:4] == ["destroy", "delete", "isBuilt", "isAvailable"]
    assert len(set(hooks)) == len(hooks)


def test_a_call_through_a_table_gives_what_stands_there():
    meta = guard_of_meta()
    order = order_of("c10/core/impl/DeviceGuardImplInterface.h")
    returns_number = ctypes.CFUNCTYPE(ctypes.c_int8, ctypes.c_void_p)
    table = Table(meta, order, {"deviceCount": returns_number(lambda this: 5)})

    def call(address, name):
        entry = pointer_at(address + order.index(name) * ctypes.sizeof(ctypes.c_void_p))
        return int(returns_number(entry)(meta))

    assert call(table.address, "deviceCount") == 5
    assert call(table.address, "type") == call(pointer_at(meta), "type") == 14


def test_an_entry_that_is_not_there_is_refused_by_name():
    with pytest.raises(NotSupportedError, match="virtual CUDA devices need launchRocket"):
        Table(guard_of_meta(), ["type"], {"launchRocket": None})


def test_the_attempt_passes_here():
    self_test.attempt()
