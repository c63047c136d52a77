"""Passes of an iteration that a rank's thread is in: forward, backward, optimizer.

Torch calls the hooks of optimizers in a loop over its table of them, in which a rank may be blocked while
another one ends.  So they are registered once for all ranks of a run, and count by thread.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

_here = threading.local()


def current_pass() -> str:
    """Return the pass that this thread is in, in the words of the trace."""
    if is_optimizing():
        return "optimizer"
    with_gradients = torch.is_grad_enabled() or getattr(_here, "in_function", False)
    if torch._C._current_graph_task_id() != -1:
        return "recomputation" if with_gradients else "backward"
    return "forward" if with_gradients else "without gradients"


def is_optimizing() -> bool:
    """Return whether this thread is in a step of an optimizer."""
    return getattr(_here, "optimizing", 0) > 0


@contextlib.contextmanager
def in_function() -> Iterator[None]:
    """Take what the body does for part of its pass: within a function torch records no gradients."""
    before = getattr(_here, "in_function", False)
    _here.in_function = before or torch.is_grad_enabled()
    try:
        yield
    finally:
        _here.in_function = before


@contextlib.contextmanager
def passes_followed() -> Iterator[None]:
    """Let `current_pass` know of optimizers' steps on all threads while the body runs."""

    def count(change: int) -> None:
        _here.optimizing = getattr(_here, "optimizing", 0) + change

    with (
        register_optimizer_step_pre_hook(lambda *_: count(1)),
        register_optimizer_step_post_hook(lambda *_: count(-1)),
    ):
        yield
