"""Overlapped optimizer: updates may come later than its step, when gradients, or parameters, have arrived.

Strategies that hide communication in the next forward pass cannot hand gradients to an optimizer of the
user's: when the backward pass returns, they are still on their way.  So the optimizer is given to the
module.  ``step()`` says that an update is due; each parameter is updated once its gradient has arrived,
at the latest when the next forward pass comes to it.  Updates are those of the optimizer that the user
makes: it is asked to step with some of its parameters at a time, with the options that its groups had when
``step()`` was called.

    model = ddp.DistributedDataParallel(net, strategy="dear")
    optimizer = ddp.OverlappedOptimizer(model, lambda parameters: torch.optim.SGD(parameters, lr=0.1))
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer.inner, 10)
    for x, y in batches:
        loss(model(x), y).backward()
        optimizer.step()

With strategies that leave gradients in place, it is the user's optimizer and nothing more, so a script
need not care which strategy it is given.

The optimizer must treat parameters one by one (with `zero1`, elements one by one).  Between the backward pass
and the step gradients are on their way: who touches one is told so.  To clip by norm there is
`OverlappedOptimizer.clip_grad_norm_`; a `GradScaler` is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import Parameter
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from ddp.errors import NotSupportedError

if TYPE_CHECKING:
    from ddp.training.data_parallel import DistributedDataParallel


class OverlappedOptimizer:
    """Updates the parameters of *model* as its strategy has them arrive.

    Args:
        model: the wrapped module, before its first forward pass.
        factory: makes the optimizer of the parameters that it is given.  With `zero1` these are this rank's
            parts of the buckets, one tensor each.  With `data_parallel` only that of rank 0 works.

    Attributes:
        inner: what *factory* made; give this one to schedulers.

    Raises:
        DDPError: the module has one already.
    """

    def __init__(
        self, model: DistributedDataParallel, factory: Callable[[list[Parameter]], Optimizer]
    ) -> None:
        self._driver = model._driver
        self._updates = self._driver.updates
        self._strategy = model.strategy.name
        self._parameters = list(self._driver.buckets.parameters)
        if self._updates is None:
            self.inner = factory(list(self._parameters))
            return

        shards = model.strategy.shards_update
        self.inner = factory(self._updates.parts() if shards else list(self._parameters))
        self._options: list[dict[str, Any]] = []
        self._updates.attach(self._update)
        model.module.register_state_dict_pre_hook(_Synchronize(self))
        model.module.register_load_state_dict_pre_hook(_Synchronize(self))

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of the optimizer inside."""
        return self.inner.param_groups

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget gradients that have accumulated locally; reduced ones are forgotten when applied."""
        if self._updates is None:
            self.inner.zero_grad(set_to_none)
            return
        for parameter in self._parameters:
            parameter.grad = None

    @property
    def _step_supports_amp_scaling(self) -> bool:
        """Answer a `GradScaler`, which asks this of an optimizer before its step.

        Raises:
            NotSupportedError: it would find no gradients.
        """
        if self._updates is not None:
            raise NotSupportedError(
                f"a GradScaler finds no gradients with strategy {self._strategy}, which updates parameters "
                "as their gradients arrive; compute in bfloat16 without one, or use strategy='wait_free'"
            )
        return False

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        """Scale the averaged gradients to a norm of at most *max_norm*, and return what it was.

        As ``torch.nn.utils.clip_grad_norm_`` of all parameters; it belongs between the backward pass and the
        step.  It waits until all gradients have arrived, so only what follows the update is still hidden
        in the next forward pass.  Every rank must call it, and gets the same norm.

        Raises:
            DDPError: there are no reduced gradients, or no such norm.
        """
        if self._updates is None:
            return clip_grad_norm_(self._parameters, max_norm, norm_type)
        return self._updates.clip(max_norm, norm_type)

    def step(self) -> None:
        """Update the parameters, now or when their gradients have arrived.

        Raises:
            DDPError: there are no reduced gradients to apply.
        """
        if self._updates is None:
            self.inner.step()
        else:
            self._options = [_options(group) for group in self.inner.param_groups]
            self.inner.__dict__["_opt_called"] = (
                True  # schedulers warn if the step has not begun before theirs
            )
            self._updates.step()

    def synchronize(self) -> None:
        """Return when every update that a step has asked for is done.

        Call it before parameters are read outside a forward pass of the model.  Reading the model's
        ``state_dict`` does so by itself.
        """
        if self._updates is not None:
            self._updates.synchronize()

    def state_dict(self) -> dict[str, Any]:
        """Return the optimizer's state; with `zero1` that of this rank's parts."""
        self.synchronize()
        return self.inner.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` gave."""
        self.synchronize()
        self.inner.load_state_dict(state)

    def _update(self, arrived: list[Parameter]) -> None:
        """Let the optimizer step with *arrived* only."""
        wanted = {id(parameter) for parameter in arrived}
        groups = self.inner.param_groups
        self.inner.param_groups = [
            {**group, **options, "params": own}
            for group, options in zip(groups, self._options, strict=True)
            if (own := [parameter for parameter in group["params"] if id(parameter) in wanted])
        ]
        try:
            with torch.no_grad():
                self.inner.step()
        finally:
            self.inner.param_groups = groups


class _Synchronize:
    """A hook that waits for the updates of an optimizer; copied or pickled with a module, it does nothing."""

    def __init__(self, optimizer: OverlappedOptimizer | None = None) -> None:
        self.optimizer = optimizer

    def __call__(self, *_: object) -> None:
        """Wait."""
        if self.optimizer is not None:
            self.optimizer.synchronize()

    def __reduce__(self) -> tuple[type[_Synchronize], tuple[()]]:
        return _Synchronize, ()


def _options(group: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in group.items() if name != "params"}
