"""Boundaries in Python between a script's operations, at which the host of a GPU spends time.

    a module      each call of it, and each of its hooks of the forward pass
    a function    of autograd written in Python, forward and backward
    a subclass    of tensors, such as DTensor, each operation that comes to it

Each takes a device's ``host_boundary``, beside the ``host_overhead`` of operations and the ``host_enqueue``
of collectives (`sim.hardware.Device`).  What a checkpoint computes again goes through its modules and
functions once more.  In a region that is compiled or fused, forward and backward, none is charged.

What is left out: hooks of tensors, of gradients and of what autograd saves, loops, and whatever else a script
does between its calls.  That one boundary takes as long as another is an assumption.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.autograd import Function
from torch.autograd.function import BackwardCFunction
from torch.nn.modules.module import register_module_forward_pre_hook

from collectives.virtual.computation.compiled import Regions
from collectives.virtual.computation.passes import in_function
from collectives.virtual.isolation.patching import replaced
from collectives.virtual.streams.gpu import current_gpu


def cross(count: int = 1) -> None:
    """Let the host of the rank whose thread this is, if it has a GPU, take the time of *count* boundaries."""
    gpu = current_gpu()
    if gpu is not None and Regions.of(gpu).current is None:
        gpu.cross(count)


@contextmanager
def boundaries_charged() -> Iterator[None]:
    """Charge ranks for calls of modules and of functions of autograd while the body runs."""
    with (
        register_module_forward_pre_hook(_before_forward),
        replaced(
            [
                (Function, "apply", classmethod(_crossing(in_function()(vars(Function)["apply"].__func__)))),
                (BackwardCFunction, "apply", _crossing(BackwardCFunction.apply)),
                (BackwardCFunction, "apply_boxed", _crossing(BackwardCFunction.apply_boxed)),
            ]
        ),
    ):
        yield


def _before_forward(module: nn.Module, args: Any) -> None:
    if not torch.compiler.is_compiling():
        cross(1 + len(module._forward_pre_hooks) + len(module._forward_hooks))


def _crossing(original: Callable[..., Any]) -> Callable[..., Any]:
    """Return *original*, a call of which is a boundary."""

    @functools.wraps(original)
    def crossing(*args: Any, **options: Any) -> Any:
        cross()
        return original(*args, **options)

    return crossing
