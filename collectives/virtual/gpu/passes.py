"""Passes of an iteration that a rank's thread is in: forward, backward, optimizer."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

_here = threading.local()


def current_pass() -> str:
    """Return the pass that this thread is in, in the words of the trace."""
    if getattr(_here, "optimizing", 0):
        return "optimizer"
    if torch._C._current_graph_task_id() != -1:
        return "recomputation" if torch.is_grad_enabled() else "backward"
    return "forward" if torch.is_grad_enabled() else "without gradients"


@contextlib.contextmanager
def passes_followed() -> Iterator[None]:
    """Let `current_pass` know of optimizers' steps while the body runs."""

    def count(change: int) -> None:
        _here.optimizing = getattr(_here, "optimizing", 0) + change

    handles = [
        register_optimizer_step_pre_hook(lambda *_: count(1)),
        register_optimizer_step_post_hook(lambda *_: count(-1)),
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
