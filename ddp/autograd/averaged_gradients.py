"""Averaged gradients on their way back to their parameters, or into optimizers of single parameters.

What has arrived is handed back when no further gradient can come, and while the rank waits for the rest.
If not all parameters are used, it is known at the end only which no rank has used: those keep what they have.

``torch.distributed.optim._apply_optimizer_in_backward`` gives parameters optimizers of their own,
which then run as soon as a gradient is there.  With several ranks that is too early, so their hooks
are taken off, and the optimizers run when the bucket has arrived.  Gradients are None afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch.nn import Parameter

from collectives.communicators.communicator import Communicator
from ddp.autograd.gradient_buckets import GradientBuckets
from ddp.autograd.unused import Readiness
from ddp.reduction.reducer import Phase
from ddp.reduction.timings import BucketRun


class AveragedGradients:
    """Hands gradients back, those of each bucket once in a pass.

    Args:
        buckets: where the gradients lie; each is one bucket, with the number of its buffer.
        communicator: tells what no rank has used.
        readiness: when gradients are ready, if not all parameters are used once in each pass.
    """

    def __init__(
        self, buckets: GradientBuckets, communicator: Communicator, readiness: Readiness | None
    ) -> None:
        self._buckets = buckets
        self._communicator = communicator
        self._readiness = readiness
        self._owed: set[int] = set()
        self._is_adding_up = False
        self._with_optimizer: frozenset[int] | None = None

    def take_over_optimizers(self) -> frozenset[int]:
        """Run optimizers that belong to single parameters as soon as these are reduced; return which do."""
        if self._with_optimizer is None:
            self._with_optimizer = take_over(self._buckets.parameters)
        return self._with_optimizer

    def begin(self, shadowing: bool) -> None:
        """Begin a pass; nothing is handed back where the rank is *shadowing* others."""
        self._owed = set() if shadowing else set(range(len(self._buckets.memory)))
        self._is_adding_up = False

    def arrived(self, run: BucketRun, phase: Phase) -> None:
        """Use the gradients of a bucket as soon as they may be used."""
        if self._with_optimizer and self._readiness is None:
            self._run_optimizers(run.bucket, self._with_optimizer)
        if phase is not Phase.FILLING:
            self._hand_back(run.bucket)

    def backward_ends(self, landed: Iterable[BucketRun], are_last: bool) -> None:
        """Hand back what has *landed*, before anything is waited for.

        *are_last*: on all ranks alike, every collective of the pass has been launched, so what is added up
        may go behind them, and is there when they are.
        """
        for run in landed:
            self._hand_back(run.bucket)
        if are_last:
            self._add_up()

    def finish(self) -> None:
        """Hand back what has not been, but for gradients that no rank has used."""
        for bucket in sorted(self._owed):
            self._hand_back(bucket)
        if self._readiness is None:
            return

        self._add_up()
        untouched = self._readiness.unused_everywhere()
        self._readiness.reset()
        if self._owed:
            for bucket in sorted(self._owed):
                self._buckets.give_back(bucket, untouched)
            own = (self._with_optimizer or frozenset()) - untouched
            step([self._buckets.parameters[index] for index in own])

    def _add_up(self) -> None:
        """Start to add up who has used what, once in a pass."""
        if self._readiness is not None and not self._is_adding_up:
            self._is_adding_up = True
            self._readiness.add_up(self._communicator, self._buckets.parameters[0].device)

    def _hand_back(self, bucket: int) -> None:
        """Hand the gradients of a bucket back, once; if not all are used, those of all wait for the end."""
        if self._readiness is None and bucket in self._owed:
            self._owed.remove(bucket)
            self._buckets.give_back(bucket, self._with_optimizer or ())

    def _run_optimizers(self, bucket: int, with_optimizer: frozenset[int]) -> None:
        members = self._buckets.members[bucket]
        own = [index for index in members if index in with_optimizer]
        self._buckets.give_back(bucket, untouched=set(members) - with_optimizer)
        step([self._buckets.parameters[index] for index in own])


def take_over(parameters: Sequence[Parameter]) -> frozenset[int]:
    """Take the optimizers' hooks off; return the indices of the parameters that have optimizers."""
    owners = frozenset(
        index for index, parameter in enumerate(parameters) if hasattr(parameter, "_in_backward_optimizers")
    )
    if owners:
        from torch.distributed.optim.apply_optimizer_in_backward import param_to_optim_hook_handle_map

        for index in owners:
            for handle in param_to_optim_hook_handle_map.get(parameters[index], []):
                handle.remove()
    return owners


@torch.no_grad()
def step(parameters: Sequence[Parameter]) -> None:
    """Run the optimizers of *parameters* on their gradients, and drop these."""
    for parameter in parameters:
        for optimizer in parameter._in_backward_optimizers:  # type: ignore[attr-defined]
            optimizer.step()
        parameter.grad = None
