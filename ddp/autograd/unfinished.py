"""Unfinished reductions: passes that ended without some gradients, told at once, raised where it matters.

As in torch the backward pass itself does not raise, as nobody has used its gradients yet: it warns, and names
the parameters.  The next forward pass with gradients raises, and so does the step of an optimizer that has
any of the parameters, so nobody trains on gradients that are not averaged.  Then all begins anew.

Source: torch/csrc/distributed/c10d/reducer.cpp (ensure_prior_reduction_finished), whose words these are.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

from torch._C._distributed_c10d import DebugLevel, get_debug_level
from torch.nn import Parameter
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook

from ddp.errors import UnfinishedReductionError

PRIOR = "Expected to have finished reduction in the prior iteration before starting a new one."
UNUSED = (
    "This error indicates that your module has parameters that were not used in producing loss. You can "
    "enable unused parameter detection by passing the keyword argument `find_unused_parameters=True` to "
    "DistributedDataParallel, and by making sure all `forward` function outputs participate in calculating "
    "loss."
)
NAMED = (
    " (Torch's own class would have you set the environment variable TORCH_DISTRIBUTED_DEBUG to either INFO "
    "or DETAIL to name them.)"
)


class UnfinishedReductions:
    """Keeps the error of a pass until somebody comes to use its gradients.

    Args:
        parameters: by name; their indices count in this order.
        rank: for the error.

    Attributes:
        kept: the error, if a pass has not finished.
    """

    def __init__(self, parameters: Mapping[str, Parameter], rank: int) -> None:
        self._names = list(parameters)
        self._members = frozenset(map(id, parameters.values()))
        self._rank = rank
        self.kept: UnfinishedReductionError | None = None
        self._hook: Any = None

    def keep(self, missing: Sequence[int], why: str = UNUSED) -> None:
        """Tell that a pass has ended without the gradients *missing*, and keep the error."""
        names = ", ".join(self._names[index] for index in missing)
        is_quiet = get_debug_level() == DebugLevel.OFF
        hint = NAMED if why is UNUSED and is_quiet else ""
        self.kept = UnfinishedReductionError(
            f"{PRIOR} {why}{hint}\n"
            f"Parameter indices which did not receive grad for rank {self._rank}: "
            f"{' '.join(map(str, missing))}\n"
            f"Parameters which did not receive grad for rank {self._rank}: {names}",
            missing,
        )
        warnings.warn(
            f"a backward pass through DistributedDataParallel ended without a gradient for {names}: its "
            "gradients are not all averaged; the next forward pass, or step of their optimizer, raises an "
            "error",
            stacklevel=2,
        )

        reference = weakref.ref(self)

        def before_step(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
            living = reference()
            if living is not None:
                living._check_step(optimizer)

        self._hook = register_optimizer_step_pre_hook(before_step)
        weakref.finalize(self, self._hook.remove)

    def check(self) -> None:
        """Raise the error that is kept; what follows begins anew.

        Raises:
            UnfinishedReductionError: there is one.
        """
        if self.kept is not None:
            error, self.kept = self.kept, None
            self._hook.remove()
            raise error

    def _check_step(self, optimizer: Optimizer) -> None:
        if any(id(one) in self._members for group in optimizer.param_groups for one in group["params"]):
            self.check()
