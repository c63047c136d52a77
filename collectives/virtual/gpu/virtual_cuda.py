"""Virtual CUDA devices of the ranks of one run: when they are there, and on which threads.

Where the model of computation is a GPU, every rank has them, and tensors of the CPU stand for the device's,
and are charged so, until the rank uses a device by itself.  Where it is not, they are put in place where they
may be wanted: where a script, or a module of the script's own, has the word cuda or accelerator in its text
or its arguments, or when code outside of torch calls ``torch.cuda``.  Whether they are there changes no time:
the devices take none, and the model charges what the CPU computes.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch._C import _len_torch_function_stack
from torch.overrides import _pop_mode as _pop_function_mode
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _get_current_dispatch_mode_stack,
    _pop_mode,
    _push_mode,
)

from collectives.virtual.computation.boundaries import boundaries_charged
from collectives.virtual.computation.model import ComputeModel, Measured
from collectives.virtual.computation.roofline import Roofline
from collectives.virtual.computation.totals import Totals
from collectives.virtual.gpu import batch_norm
from collectives.virtual.gpu.accelerator import CudaDevices, InstantGpu, on_demand
from collectives.virtual.gpu.functions import triggers
from collectives.virtual.gpu.routing import Router
from collectives.virtual.gpu.triton_kernels import launches_of_triton
from collectives.virtual.isolation.patching import replaced
from collectives.virtual.notices import Notices
from collectives.virtual.streams.gpu import current_gpu
from collectives.virtual.streams.gpus import gpu_of, on_gpu
from sim.cluster import Cluster, RankThread

if TYPE_CHECKING:
    from collectives.virtual.diagnosis.races import Races
    from collectives.virtual.gpu.dispatch_mode import Execution
    from collectives.virtual.gpu.shapes import Key, Known


class VirtualCuda:
    """The virtual CUDA devices of a run."""

    def __init__(
        self, model: ComputeModel, has_data: bool, router: Router | None = None, races: Races | None = None
    ) -> None:
        self._model = model
        self._roofline = model if isinstance(model, Roofline) and gpu_of(model) is not None else None
        self._has_data = has_data
        self._router = router
        self._races = races
        self._wanted = self._roofline is not None
        self._known_shapes: dict[Key, Known] = {}
        self._entering: dict[int, Callable[[], CudaDevices]] = {}
        self._installed = contextlib.ExitStack()
        self._are_installed = False

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
        """Let devices be found on threads of ranks that have them, or come when one asks, in the body."""
        with self._installed:
            self._installed.enter_context(launches_of_triton(has_data=self._has_data))
            if self._wanted:
                self._install()
            else:
                self._installed.enter_context(replaced(triggers(self._enter_here)))
            if self._roofline is None:
                self._installed.enter_context(replaced(batch_norm.replacements()))
            else:
                self._installed.enter_context(boundaries_charged())
            yield

    def _install(self) -> None:
        if not self._are_installed:
            from collectives.virtual.gpu.installation import installed  # it imports torch's compiler

            self._are_installed = True
            self._installed.enter_context(installed())

    def _enter_here(self) -> None:
        """Let the rank whose thread this is have devices."""
        rank_thread = Cluster.current()
        if rank_thread is not None:
            self._wanted = True
            self._entering[rank_thread.rank]()

    @contextlib.contextmanager
    def on_rank(self, rank_thread: RankThread) -> Iterator[None]:
        """Let this rank's thread have its devices, and charge what it computes, while the body runs."""
        if self._roofline is not None:
            self._roofline.totals.pop(rank_thread.rank, None)  # of a run before
        with on_gpu(rank_thread, self._model), contextlib.ExitStack() as stack:
            stack.callback(take_function_modes)
            if self._roofline is None:
                stack.enter_context(self._model.on_rank(rank_thread))
            below = len(_get_current_dispatch_mode_stack())

            def enter() -> CudaDevices:
                """Have CUDA devices from now on, if the rank has not."""
                devices = CudaDevices.here()
                if devices is None:
                    self._install()
                    above = _pop_modes(below)
                    devices = stack.enter_context(self._entered(rank_thread))
                    for mode in reversed(above):
                        _push_mode(mode)
                return devices

            self._entering[rank_thread.rank] = enter
            stack.enter_context(on_demand(enter))
            if self._wanted:
                enter()
            yield

    @contextlib.contextmanager
    def _entered(self, rank_thread: RankThread) -> Iterator[CudaDevices]:
        """Let this rank's thread have CUDA devices while the body runs."""
        from collectives.virtual.gpu.dispatch_mode import DispatchMode

        devices, execution = self._made(rank_thread)
        mode = DispatchMode(execution)
        devices.is_functional = lambda: mode.is_functional
        torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(..., device=...) moves where modes see it
        try:
            with devices.entered(), torch.autograd.set_multithreading_enabled(False), mode:
                yield devices
        finally:
            torch._C._set_only_lift_cpu_tensors(False)

    def _made(self, rank_thread: RankThread) -> tuple[CudaDevices, Execution]:
        """Return the devices of a rank, and what carries out its operations."""
        gpu = current_gpu()
        if gpu is None or self._roofline is None:
            from collectives.virtual.gpu.instant_execution import InstantExecution, MeasuredExecution

            instant = InstantGpu(rank_thread)
            kind_of_instant = MeasuredExecution if isinstance(self._model, Measured) else InstantExecution
            return CudaDevices(rank_thread, instant, self._has_data), kind_of_instant(instant)
        from collectives.virtual.gpu.charged_execution import ChargedExecution
        from collectives.virtual.gpu.followed_execution import FollowedExecution

        devices = CudaDevices(rank_thread, gpu, self._has_data)
        launches = self._roofline.launches(rank_thread.cluster)
        totals = devices.totals = self._roofline.totals.setdefault(rank_thread.rank, Totals())
        notices = Notices.of(rank_thread.cluster)
        kind = ChargedExecution if self._races is None else FollowedExecution
        charged = kind(
            gpu,
            launches,
            totals,
            self._has_data,
            notices,
            self._known_shapes,
            devices.memory,
            self._router,
        )
        if isinstance(charged, FollowedExecution):
            assert self._races is not None
            charged.follow(self._races)
        return devices, charged


def _pop_modes(below: int) -> list[TorchDispatchMode]:
    """Take the modes of the user's from this thread, which lie above ours; ours lie above *below* others."""
    count = len(_get_current_dispatch_mode_stack()) - below
    return [_pop_mode() for _ in range(count)]


_SAYS_SO = ("cuda", "accelerator")
"""Words by which the user's code tells that it may use CUDA devices."""


def mentions_cuda(text: str | None) -> bool:
    """Return whether *text* may have to do with CUDA devices; None where nobody knows it."""
    return text is None or any(word in text for word in _SAYS_SO)


def text_of_module(fn: Callable[..., Any]) -> str | None:
    """Return the text of the module in which *fn* was written; None where nobody knows it."""
    try:
        return inspect.getsource(sys.modules[getattr(fn, "func", fn).__module__])
    except (OSError, TypeError, AttributeError, KeyError):
        return None


def take_function_modes() -> None:
    """Take function modes that a script leaves, such as a default device, from this thread at its end.

    What is left would go after the thread has ended for Python, and take down a process that ends then.
    """
    for _ in range(_len_torch_function_stack()):
        _pop_function_mode()
