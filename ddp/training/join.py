"""Uneven inputs: ranks that have run out of data take part in what the others still do.

``with model.join():`` is torch's context manager (`torch.distributed.algorithms.join.Join`).  In it
every forward pass first tells how many ranks have not joined.  A rank that has joined *shadows* each
iteration of the others: it makes the same collective calls in the same order, with gradients of
zero, through the same state machine, so any overlap strategy keeps its order.  At the end the
model of the last rank to join goes to all.

Source: torch/nn/parallel/distributed.py (_DDPJoinHook) of torch 2.13.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.algorithms.join import JoinHook, _JoinConfig

from ddp.training.buffers import BEFORE
from ddp.training.replication import broadcast_from

if TYPE_CHECKING:
    from collectives.communicators.communicator import Communicator
    from ddp.training.wrapped_module import WrappedModule


class ShadowingHook(JoinHook):
    """Takes the place of a rank that has joined.

    Args:
        model: of which this rank has no inputs any more.
    """

    def __init__(self, model: WrappedModule) -> None:
        self._model = model
        super().__init__()

    def main_hook(self) -> None:
        """Make the collective calls of one iteration of the ranks that have inputs."""
        model, communicator = self._model, self._model._communicator
        model._driver.rebuild_if_due()
        if model.require_forward_param_sync and model.forward_sync_buffers:
            choose_root = partial(agree_on_rank, communicator, model.device, False)
            model._buffers_of_module.synchronize(BEFORE, communicator, choose_root)

        reduces = anybody_reduces(communicator, model.device, False)
        model.require_forward_param_sync = reduces
        if reduces:
            model._driver.shadow()

    def post_hook(self, is_last_joiner: bool) -> None:
        """Take the model of the last rank to join."""
        model, communicator = self._model, self._model._communicator
        model._driver.in_flight.divisor = communicator.world_size

        state: list[torch.Tensor] = [*model.module.parameters()]
        if model.forward_sync_buffers:
            state += model._buffers_of_module.collect().values()
        model._authoritative_rank = agree_on_rank(communicator, model.device, is_last_joiner)
        broadcast_from(model._authoritative_rank, state, communicator)
        model._join_config = _JoinConfig.construct_disabled_join_config()


def count_those_with_inputs(model: WrappedModule, work: Any) -> None:
    """Begin an iteration within ``join``: divide by the number of ranks that have inputs, if asked to.

    *work* is what `Join.notify_join_context` has started; None: the module is not the one that counts.
    """
    model._driver.in_flight.divisor = model._communicator.world_size
    if work is not None:
        active = num_active(work)
        if not model._divide_by_initial_world_size:
            model._driver.in_flight.divisor = active


def agree_on_rank(communicator: Communicator, device: torch.device, candidate: bool) -> int:
    """Return the highest rank that is a candidate; a collective call."""
    mine = communicator.rank if candidate else -1
    highest = torch.tensor([mine], dtype=torch.int64, device=device)
    communicator.all_reduce(highest, op="max")
    return int(highest.item())


def anybody_reduces(communicator: Communicator, device: torch.device, reduces: bool) -> bool:
    """Return whether some rank reduces in this iteration's backward pass; a collective call."""
    flag = torch.tensor([int(reduces)], dtype=torch.int64, device=device)
    communicator.all_reduce(flag, op="max")
    return bool(flag.item())


def num_active(work: Any) -> int:
    """Return how many ranks have not joined, from what `Join.notify_join_context` has started."""
    work.wait()
    result = work.get_future().wait()
    return int((result[0] if isinstance(result, list | tuple) else result).item())
