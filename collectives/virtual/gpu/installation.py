"""Installation of virtual CUDA devices: what C++ and Python find of them on threads of ranks that have any.

Importing this takes a second, as it imports torch's compiler and its systems; runs whose scripts know nothing
of CUDA do without.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from itertools import chain

from collectives.garbage import OLD_OBJECTS
from collectives.virtual.gpu import replacements
from collectives.virtual.gpu.accelerator import CudaDevices
from collectives.virtual.gpu.native import self_test
from collectives.virtual.gpu.native.cuda_build import cuda_is_there
from collectives.virtual.gpu.stock import cuda_only, ddp, dtensor, fully_sharded
from collectives.virtual.isolation.patching import replaced

_REPLACED = (replacements, cuda_only, ddp, dtensor, fully_sharded)
"""What has attributes of torch that are replaced meanwhile; on other threads each is torch's own."""


@contextlib.contextmanager
def installed() -> Iterator[None]:
    """Let C++ and Python find CUDA devices on threads of ranks that have them, while the body runs.

    Raises:
        NotSupportedError: this torch does not bear them.
    """
    self_test.check()
    cuda_only.register()
    with (
        OLD_OBJECTS.passed_over(),  # to look through all modules takes as long as a thousand operations
        cuda_is_there(_current_index, _num_devices),
        replaced([*chain(*(own.replacements() for own in _REPLACED))]),
    ):
        yield


def _current_index() -> int:
    devices = CudaDevices.here()
    return 0 if devices is None else devices.index


def _num_devices() -> int:
    devices = CudaDevices.here()
    return 0 if devices is None else devices.num_devices
