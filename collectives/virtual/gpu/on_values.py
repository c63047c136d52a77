"""Launcher of calls whose tensors are virtual CUDA tensors with data, on what works on tensors of the CPU.

The door of a process group does the same for torch's own calls; this is for who calls a communicator itself.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from collectives.communicators.programs import ProgramLauncher
from collectives.communicators.requests import Request
from collectives.execution.work import Work
from collectives.virtual.gpu.values import value_of


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
