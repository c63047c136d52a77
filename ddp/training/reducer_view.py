"""The reducer of a wrapped module as ``model.reducer`` of torch's class has it, for those who look into it.

What torch's class tells its reducer step by step, our driver hears from autograd, so only what asks for
something, or may be called in between, is here.

Source: torch/csrc/distributed/c10d/reducer.hpp.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from ddp.training.wrapped_module import WrappedModule


class ReducerView:
    """What users and torch's tests ask a reducer.

    Args:
        model: the wrapped module.
    """

    def __init__(self, model: WrappedModule) -> None:
        self._model = model

    def _get_local_used_map(self) -> torch.Tensor:
        """Return on how many ranks each parameter was used before the latest reduction, as int32.

        Zeros where nobody looks, which is without ``find_unused_parameters`` and ``static_graph``.
        """
        driver = self._model._driver
        counts: Sequence[int] = () if driver.readiness is None else driver.readiness.num_users
        counts = counts or [0] * len(driver.buckets.parameters)
        return torch.tensor(counts, dtype=torch.int32, device=self._model.device)

    def _ddp_graph_static(self) -> bool:
        """Return whether the same parameters have been unused in every pass so far."""
        readiness = self._model._driver.readiness
        return readiness is None or not readiness.graph_has_changed

    def _rebuild_buckets(self) -> bool:
        """Bucket anew, if it is time; return whether that has been done."""
        before = self._model._driver.has_rebuilt
        self._model._driver.rebuild_if_due()
        return self._model._driver.has_rebuilt and not before

    def _check_reducer_finalized(self) -> None:
        """Check that the latest backward pass has come to its end; see `_check_reducer_finalized` there."""
        self._model._check_reducer_finalized()

    def _remove_autograd_hooks(self) -> None:
        """Reduce no further gradient."""
        self._model._remove_autograd_hooks()

    def _set_ddp_runtime_logging_sample_rate(self, sample_rate: int) -> None:
        """Take times in one of so many iterations, after the first ten."""
        self._model._set_ddp_runtime_logging_sample_rate(sample_rate)

    def _set_static_graph(self) -> None:
        """Take it that every iteration uses the same parameters, equally often."""
        self._model._set_static_graph()

    def prepare_for_forward(self) -> None:
        """Do nothing: the forward pass of the wrapped module does."""

    def prepare_for_backward(self, outputs: Sequence[torch.Tensor]) -> None:
        """Reduce in the backward pass that comes through *outputs*, or through any parameter if empty."""
        self._model._driver.forward_ended(list(outputs))

    def get_backward_stats(self) -> list[int]:
        """Return, for each parameter, nanoseconds from the start of the forward pass to its gradient."""
        driver = self._model._driver
        began_ps = driver.forward_began_ps
        ready: dict[int, Any] = driver.ready.ready_ps
        indices = range(len(driver.buckets.parameters))
        return [max(0, ready.get(index, began_ps) - began_ps) // 1000 for index in indices]
