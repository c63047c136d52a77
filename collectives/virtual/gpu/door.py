"""Door of process groups for virtual CUDA tensors: communicators get their values.

A tensor whose value is known is that value, a tensor of the CPU that shares its memory: what is written there
is written into the tensor.  One that has none is a tensor of its size on the device ``meta``.  Where a result
is to be put that may come to be known, as a vote or a size in a run without data, there is room for it.

The door is for torch's own calls.  Who calls a communicator itself gets the same by a launcher (`OnValues`).
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from collectives.communicators.programs import ProgramLauncher
from collectives.communicators.requests import Request
from collectives.execution.work import Work
from collectives.virtual.gpu.accelerator import CudaDevices, known_integers
from collectives.virtual.gpu.data_dependent import lose
from collectives.virtual.gpu.values import is_small, is_virtual, set_value, value_of


class ValueDoor:
    """The door of ranks with virtual CUDA tensors; a `collectives.torch_backend.door.Door`."""

    def given(self, tensor: Tensor) -> Tensor:
        """Return the value of *tensor*; a tensor without memory, where it is not known."""
        _note(tensor)
        value = value_of(tensor)
        return _passed(_on(tensor, "meta") if value is None else value)

    def wanted(self, tensor: Tensor) -> Tensor:
        """Return where the value of *tensor* is to be put; a tensor without memory, where it is data."""
        _note(tensor)
        value = value_of(tensor)
        if value is not None:
            return _passed(value)
        return _passed(_on(tensor, "cpu" if is_small(tensor, known_integers()) else "meta"))

    def done(self, tensor: Tensor, plain: Tensor, is_known: bool) -> None:
        """Let *plain* be the value of *tensor*, if it is known and has memory."""
        if not is_known or plain.is_meta:
            lose(tensor)
        elif is_virtual(tensor) and value_of(tensor) is not plain:
            set_value(tensor, plain)

    def made(self, plain: Tensor, like: Tensor) -> Tensor:
        """Return a tensor for which *plain* stands, on the device of *like*; *plain* for a plain one."""
        if not isinstance(like, FakeTensor):
            return plain
        return FakeTensor(like.fake_mode, _on(plain, "meta"), like.device)


def _note(tensor: Tensor) -> None:
    devices = CudaDevices.here()
    if devices is not None:
        devices.communicate(tensor)


def _passed(plain: Tensor) -> Tensor:
    """Return *plain*, and tell of it a graph that captures calls."""
    devices = CudaDevices.here()
    if devices is not None and devices.gpu.graph is not None:
        devices.gpu.graph.pass_door(plain)
    return plain


def _on(tensor: Tensor, device: str) -> Tensor:
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=device)


class OnValues:
    """A `collectives.communicators.communicator.Launcher` that gives *launcher* the values of tensors.

    A value shares its tensor's memory, so a result is in place when the call is done.
    """

    def __init__(self, launcher: ProgramLauncher) -> None:
        self._launcher = launcher
        self.rank = launcher.rank
        self.world_size = launcher.world_size
        self.clock = launcher.clock
        self.selector = launcher.selector
        self.moves_by_itself = launcher.moves_by_itself
        self.wait_any = launcher.wait_any
        self.first_source = launcher.first_source
        self.turn = launcher.turn

    def launch(self, request: Request) -> Work:
        """Start *request* on the values of its tensors."""
        plain = replace(request, given=_plain(request.given), output=_plain(request.output))
        return self._launcher.launch(plain)

    def poll(self) -> None:
        """Advance what is in flight as far as it goes without waiting."""
        self._launcher.poll()


def _plain(tensor: Tensor | None) -> Tensor | None:
    value = None if tensor is None else value_of(tensor)
    return tensor if value is None else value
