"""Virtual CUDA devices of the ranks of one run: what is switched on for them, and put back at its end.

A rank has them when its script, or a module of the script's own, has the word cuda or accelerator in its
text or its arguments, when code outside of torch calls ``torch.cuda``, or when the run is one without data.
Until then its tensors of the CPU stand for the device's, and the model of computation charges them.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator

import torch
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _get_current_dispatch_mode_stack,
    _pop_mode,
    _push_mode,
)

from collectives.virtual.computation.roofline import Roofline
from collectives.virtual.computation.totals import Totals
from collectives.virtual.devices.mentions import mentions_cuda, text_of_module
from collectives.virtual.gpu import attention
from collectives.virtual.gpu.accelerator import CudaDevices, on_demand
from collectives.virtual.gpu.cuda_mode import CudaMode
from collectives.virtual.gpu.native import self_test
from collectives.virtual.gpu.native.cuda_build import cuda_is_there
from collectives.virtual.gpu.replacements import replacements
from collectives.virtual.gpu.shapes import Key, Known
from collectives.virtual.gpu.stock import cuda_only, table
from collectives.virtual.isolation.patching import replaced
from collectives.virtual.notices import Notices
from collectives.virtual.streams.gpu import current_gpu
from collectives.virtual.streams.gpus import on_gpu
from sim.cluster import Cluster, RankThread


class VirtualCuda:
    """The virtual CUDA devices of a run.

    Args:
        model: of computation, on a GPU.
        has_data: whether tensors have values.

    Raises:
        NotSupportedError: this torch does not bear them.
    """

    def __init__(self, model: Roofline, has_data: bool) -> None:
        self_test.check()
        self._model = model
        self._has_data = has_data
        self._wanted = not has_data
        self._known_shapes: dict[Key, Known] = {}
        self._entering: dict[int, Callable[[], CudaDevices]] = {}

    def read(self, text: str | None) -> None:
        """Note what a script, or one of its arguments, says; None where nobody knows."""
        self._wanted = self._wanted or mentions_cuda(text)
        rank_thread = Cluster.current()
        if self._wanted and rank_thread is not None:
            self._entering[rank_thread.rank]()

    def read_module_of(self, fn: Callable[..., object]) -> None:
        """Note what the module says in which *fn* was written."""
        self.read(text_of_module(fn))

    @contextlib.contextmanager
    def there(self) -> Iterator[None]:
        """Let C++ and Python find CUDA devices on threads of ranks that have them, while the body runs."""
        attention.register()
        cuda_only.register()
        gc.freeze()  # looking through all modules for garbage takes as long as a thousand operations
        with (
            cuda_is_there(_current_index, _num_devices),
            replaced([*replacements(), *table.replacements()]),
        ):
            try:
                yield
            finally:
                gc.unfreeze()

    @contextlib.contextmanager
    def on_rank(self, rank_thread: RankThread) -> Iterator[None]:
        """Let this rank's thread have its GPU, and charge what it computes, while the body runs."""
        self._model.totals.pop(rank_thread.rank, None)  # of a run before
        with on_gpu(rank_thread, self._model), contextlib.ExitStack() as stack:
            charging = stack.enter_context(contextlib.ExitStack())

            def enter() -> CudaDevices:
                """Have CUDA devices from now on, if the rank has not."""
                devices = CudaDevices.here()
                if devices is None:
                    above = _pop_modes(below) if charging_entered else []
                    charging.close()
                    devices = stack.enter_context(self._entered(rank_thread))
                    for mode in reversed(above):
                        _push_mode(mode)
                return devices

            below = len(_get_current_dispatch_mode_stack())
            charging_entered = False
            self._entering[rank_thread.rank] = enter
            stack.enter_context(on_demand(enter))
            if self._wanted:
                enter()
            else:
                charging.enter_context(self._model.on_rank(rank_thread))
                charging_entered = True
            yield

    @contextlib.contextmanager
    def _entered(self, rank_thread: RankThread) -> Iterator[CudaDevices]:
        """Let this rank's thread have CUDA devices while the body runs."""
        gpu = current_gpu()
        assert gpu is not None
        devices = CudaDevices(rank_thread, gpu, self._has_data)
        costs = self._model.launches(rank_thread.cluster)
        totals = self._model.totals.setdefault(rank_thread.rank, Totals())
        notices = Notices.of(rank_thread.cluster)
        mode = CudaMode(gpu, costs, totals, self._has_data, notices, self._known_shapes)
        mode.born.append(devices.memory.born)
        devices.is_functional = lambda: mode.is_functional
        torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(..., device=...) moves where modes see it
        try:
            with devices.entered(), torch.autograd.set_multithreading_enabled(False), mode:
                yield devices
        finally:
            torch._C._set_only_lift_cpu_tensors(False)


def _pop_modes(below: int) -> list[TorchDispatchMode]:
    """Take the modes of the user's from this thread, which lie above ours; ours lies above *below* others."""
    count = len(_get_current_dispatch_mode_stack()) - below - 1
    return [_pop_mode() for _ in range(count)]


def current_mode() -> CudaMode | None:
    """Return the mode of this thread; None on a thread without virtual CUDA tensors."""
    stack = _get_current_dispatch_mode_stack()
    return next((mode for mode in stack if isinstance(mode, CudaMode)), None)


def _current_index() -> int:
    devices = CudaDevices.here()
    return 0 if devices is None else devices.index


def _num_devices() -> int:
    devices = CudaDevices.here()
    return 0 if devices is None else devices.num_devices
