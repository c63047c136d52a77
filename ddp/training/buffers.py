"""Buffers, such as the running means of BatchNorm: rank 0's go to everybody before a forward pass.

They are collected anew each time, because a module may replace them.  A hook that was registered
replaces the broadcast (`ddp.DistributedDataParallel._register_buffer_comm_hook`), before or after
the forward pass; the futures that it returns are waited for at the end of the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.grad_mode import _unsafe_preserve_version_counter
from torch.nn.parallel.distributed import _BufferCommHookLocation

from ddp.training.replication import broadcast_from

if TYPE_CHECKING:
    from torch import nn

    from collectives.communicators.communicator import Communicator

BEFORE, AFTER = _BufferCommHookLocation.PRE_FORWARD, _BufferCommHookLocation.POST_FORWARD


@dataclass(frozen=True)
class _Hook:
    state: object
    call: Callable[[Any, dict[str, torch.Tensor]], Any]
    location: _BufferCommHookLocation


class Buffers:
    """The buffers of a module; a module that has none when it is wrapped never has, as in torch.

    Args:
        module: whose they are.
        ignored: names of those that stay as they are on each rank.
    """

    def __init__(self, module: nn.Module, ignored: Collection[str]) -> None:
        self._module = module
        self._ignored = ignored
        self._hook: _Hook | None = None
        self._futures: list[Any] = []
        self._any = bool(self.collect())

    def collect(self) -> dict[str, torch.Tensor]:
        """Return the buffers, by name."""
        named = self._module.named_buffers()
        return {name: buffer for name, buffer in named if name not in self._ignored}

    def register(self, state: object, hook: Any, location: _BufferCommHookLocation) -> None:
        """Let *hook* do what the broadcast does.

        Raises:
            TypeError: it cannot be called.
        """
        if not callable(hook):
            raise TypeError(f"a hook for buffers must be callable, got {hook!r}")
        self._hook = _Hook(state, hook, location)

    def synchronize(
        self,
        location: _BufferCommHookLocation,
        communicator: Communicator,
        choose_root: Callable[[], int] | None = None,
    ) -> None:
        """Broadcast the buffers, or call the hook, if this is where that happens.

        *choose_root* agrees on the rank whose buffers count, rank 0 by default; a collective call.
        """
        if location is not (BEFORE if self._hook is None else self._hook.location):
            return
        if not self._any:
            return
        buffers = self.collect()
        root = choose_root() if choose_root is not None else 0
        if self._hook is None:
            broadcast_from(root, list(buffers.values()), communicator)
            return
        with torch.no_grad(), _unsafe_preserve_version_counter(tuple(buffers.values())):
            futures = self._hook.call(self._hook.state, buffers)
        if futures is not None:
            self._futures += futures if isinstance(futures, Sequence) else [futures]

    def finish(self) -> None:
        """Wait for what hooks have left in flight."""
        for future in self._futures:
            future.wait()
        self._futures.clear()
