"""Parameters whose gradients are reduced together, later, when one chosen gradient is ready.

``delay_all_reduce_named_params`` takes parameters out of the buckets: their gradients are views of
one buffer, and ``param_to_hook_all_reduce`` says when it goes: when the gradient of that parameter
is there.  Unlike torch, it also waits for the gradients themselves, and the backward pass waits for
the result, where torch leaves both to the user and to the device's stream; so it works on a CPU.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch.autograd import Variable

from ddp.buckets.flat_bucket import FlatBucket
from ddp.errors import DDPError

if TYPE_CHECKING:
    from torch.nn import Parameter

    from collectives.communicators.communicator import Communicator
    from collectives.execution.work import Work


class DelayedReduction:
    """Reduces the gradients of some parameters when the gradient of another is there.

    Args:
        named: the parameters, by name; they are of one dtype and device.
        trigger: the parameter whose gradient starts the reduction.
        communicator: carries it.

    Raises:
        DDPError: the parameters have several dtypes or devices.
    """

    def __init__(
        self, named: Sequence[tuple[str, Parameter]], trigger: Parameter, communicator: Communicator
    ) -> None:
        kinds = {(parameter.dtype, parameter.device) for _, parameter in named}
        if len(kinds) != 1:
            raise DDPError(
                "the parameters of delay_all_reduce_named_params share a buffer, so they have one dtype "
                f"and device; got {sorted(map(str, kinds))}"
            )
        parameters = [parameter for _, parameter in named]
        self._bucket = FlatBucket(parameters, [name for name, _ in named], communicator.zeros, as_view=True)
        self._communicator = communicator
        self._enabled = True
        self._awaited: set[int] = set()
        self._work: Work | None = None
        reference = weakref.ref(self)

        def on_gradient(parameter: torch.Tensor) -> None:
            living = reference()
            if living is not None:
                living._accumulated(parameter)

        self._members = frozenset(map(id, (*parameters, trigger)))
        handles = [p.register_post_accumulate_grad_hook(on_gradient) for p in {*parameters, trigger}]
        self.remove_hooks = weakref.finalize(self, lambda: [handle.remove() for handle in handles])

    def forward_ended(self, synchronize: bool) -> None:
        """Let gradients be views of the buffer, which are zero where there is no gradient yet."""
        self._enabled = synchronize
        self._awaited.clear()
        for parameter, view in zip(self._bucket.parameters, self._bucket.views, strict=True):
            if parameter.grad is None:
                parameter.grad = view.zero_()

    def _accumulated(self, parameter: torch.Tensor) -> None:
        """Start when all gradients are there, in any order."""
        if not self._enabled:
            return
        if not self._awaited:
            self._awaited = set(self._members)
            Variable._execution_engine.queue_callback(self._finish)
        self._awaited.discard(id(parameter))
        if not self._awaited:
            self._start()

    def _start(self) -> None:
        self._enabled = False
        for position in range(len(self._bucket.parameters)):
            self._bucket.take(position, self._communicator.world_size)
        self._work = self._bucket.start(self._communicator)

    def _finish(self) -> None:
        if self._work is None:
            self._start()
        assert self._work is not None
        self._work.wait()
        self._work = None
        self._awaited.clear()
        self._bucket.give_back()
