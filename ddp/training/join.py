"""Uneven inputs: ranks that have run out of data take part in what the others still do.

``with model.join():`` is torch's context manager (`torch.distributed.algorithms.join.Join`).  In it
every forward pass first tells how many ranks have not joined.  A rank that has joined *shadows* each
iteration of the others: it makes the same collective calls in the same order, with gradients of
zero, through the same state machine, so any overlap strategy keeps its order.  At the end the
model of the last rank to join goes to all.

Source: torch/nn/parallel/distributed.py (_DDPJoinHook) of torch 2.13.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.algorithms.join import JoinHook

if TYPE_CHECKING:
    from collectives.communicators.communicator import Communicator


class ShadowingHook(JoinHook):
    """Takes the place of a rank that has joined.

    Args:
        shadow: makes the collective calls of one iteration of the others.
        finish: takes the model of the last rank to join; is told whether that is this one.
    """

    def __init__(self, shadow: Callable[[], None], finish: Callable[[bool], None]) -> None:
        self._shadow = shadow
        self._finish = finish
        super().__init__()

    def main_hook(self) -> None:
        """Shadow one iteration."""
        self._shadow()

    def post_hook(self, is_last_joiner: bool) -> None:
        """Take the model of the last rank to join."""
        self._finish(is_last_joiner)


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
