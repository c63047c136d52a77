"""Mapping of CUDA devices to the CPU, with a notice of what was mapped.

Two things do it.  What a script calls by name, such as ``torch.cuda.set_device``, is replaced for the
time of the run, on rank threads, and only for code outside of torch: torch itself goes on seeing the
devices that there are.  Devices as arguments are mapped by a mode of the rank's thread, which sees
every call of torch's API.  That costs some 2 µs a call, so a rank gets it only when it needs it: when
its script, or a module of the script's own, has the word cuda or accelerator in its text or its
arguments, or when any code outside of torch calls ``torch.cuda``.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed.distributed_c10d as c10d
from torch._C import _len_torch_function_stack
from torch.overrides import _pop_mode, _push_mode

from collectives.virtual.computation.model import ComputeModel
from collectives.virtual.devices import arguments as device_arguments
from collectives.virtual.devices.accelerator import Accelerator
from collectives.virtual.devices.arguments import MAPPED, changed, is_cuda
from collectives.virtual.devices.device_mode import DeviceMode
from collectives.virtual.devices.functions import ACCELERATOR, CUDA, NVTX
from collectives.virtual.devices.mentions import mentions_cuda, text_of_module
from collectives.virtual.devices.streams import VirtualEvent, VirtualStream
from collectives.virtual.isolation.function_modes import take_function_modes
from collectives.virtual.isolation.patching import Replacement, replaced
from collectives.virtual.notices import Notices
from sim.cluster import Cluster, RankThread


class Devices:
    """The devices of the ranks of one run.

    Args:
        num_ranks: number of ranks.
        model: of computation, which charges them.
    """

    def __init__(self, num_ranks: int, model: ComputeModel) -> None:
        self._model = model
        self._accelerators: list[Accelerator | None] = [None] * num_ranks
        self._has_mode = [False] * num_ranks
        self._wanted = False

    def read(self, text: str | None) -> None:
        """Note what a script, or one of its arguments, says; None where nobody knows."""
        self._wanted = self._wanted or mentions_cuda(text)
        rank_thread = Cluster.current()
        if rank_thread is not None:
            self.enter(rank_thread)

    def read_module_of(self, fn: Callable[..., Any]) -> None:
        """Note what the module says in which *fn* was written."""
        self.read(text_of_module(fn))

    def enter(self, rank_thread: RankThread) -> None:
        """Map devices on this rank's thread from now on, if they have to be."""
        if self._wanted and not self._has_mode[rank_thread.rank]:
            self._has_mode[rank_thread.rank] = True
            above = [_pop_mode() for _ in range(_len_torch_function_stack())]
            _push_mode(DeviceMode(Notices.of(rank_thread.cluster)))
            for mode in reversed(above):
                _push_mode(mode)

    @contextlib.contextmanager
    def on_rank(self, rank_thread: RankThread) -> Iterator[None]:
        """Let this rank's thread have them, and be charged by the model, while the body runs."""
        self.enter(rank_thread)
        try:
            with self._model.on_rank(rank_thread):
                yield
        finally:
            take_function_modes()

    def there(self) -> AbstractContextManager[None]:
        """Return a context in which rank threads see these devices."""
        return replaced(self._replacements())

    def _accelerator(self, rank_thread: RankThread) -> Accelerator:
        self._wanted = True
        self.enter(rank_thread)
        found = self._accelerators[rank_thread.rank]
        if found is None:
            found = self._accelerators[rank_thread.rank] = Accelerator(rank_thread)
        return found

    def _replacements(self) -> Iterator[Replacement]:
        for module, functions in (
            (torch.cuda, CUDA),
            (torch.accelerator, ACCELERATOR),
            (torch.cuda.nvtx, NVTX),
        ):
            for name in functions.keys() & vars(module).keys():
                yield module, name, self._outside_of_torch(module, name, functions[name])
        for module in (torch.cuda, torch):
            yield module, "Stream", self._outside_of_torch(module, "Stream", _made(VirtualStream))
            yield module, "Event", self._outside_of_torch(module, "Event", _made(VirtualEvent))
        yield torch, "Generator", _class_outside_of_torch(torch.Generator, _generator)
        for module in (c10d, torch.distributed):
            yield (
                module,
                "is_nccl_available",
                self._outside_of_torch(module, "is_nccl_available", lambda own: True),
            )
        yield torch, "set_default_device", changed(torch.set_default_device, self._first_enter)
        yield from device_arguments.replacements()

    def _outside_of_torch(self, module: Any, name: str, function: Callable[..., Any]) -> Any:
        """Return what is *function* on rank threads, and for torch itself the original, as elsewhere."""
        original, full = getattr(module, name), f"{module.__name__}.{name}"

        def virtual(rank_thread: RankThread, *args: Any, **options: Any) -> Any:
            Notices.of(rank_thread.cluster).add(MAPPED, full)
            return function(self._accelerator(rank_thread), *args, **options)

        if inspect.isclass(original):
            return _class_outside_of_torch(original, virtual)

        @functools.wraps(original)
        def called(*args: Any, **options: Any) -> Any:
            rank_thread = Cluster.current()
            if rank_thread is None or _is_torch(sys._getframe(1)):
                return original(*args, **options)
            return virtual(rank_thread, *args, **options)

        return called

    def _first_enter(self, notices: Notices, options: dict[str, Any]) -> None:
        rank_thread = Cluster.current()
        assert rank_thread is not None
        self._accelerator(rank_thread)


def _class_outside_of_torch(original: Any, virtual: Callable[..., Any]) -> type:
    """Return a class that stands for *original*; its instances are made as a function is called."""

    class Kind(type):
        def __call__(cls, *args: Any, **options: Any) -> Any:
            rank_thread = Cluster.current()
            if rank_thread is None or _is_torch(sys._getframe(1)):
                return original(*args, **options)
            return virtual(rank_thread, *args, **options)

        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, (original, *_STANDS_FOR.get(original.__name__, ())))

    return Kind(original.__name__, (), {"__module__": original.__module__, "__doc__": original.__doc__})


_STANDS_FOR: dict[str, tuple[type, ...]] = {"Stream": (VirtualStream,), "Event": (VirtualEvent,)}


def _made(kind: type) -> Callable[..., Any]:
    return lambda accelerator, *args, **options: kind(*args, **options)


def _generator(rank_thread: RankThread, device: Any = "cpu") -> torch.Generator:
    return _Generator("cpu" if is_cuda(device) else device)


_Generator = torch.Generator


def _is_torch(frame: Any) -> bool:
    """Return whether torch itself asks, or our backend on its behalf; its tests are no part of it."""
    name: str = frame.f_globals.get("__name__", "")
    if name.startswith("torch.testing."):
        return False
    return name == "torch" or name.startswith(("torch.", "collectives.torch_backend."))
