"""Functions hidden from torch's modes, as what a backend in C++ does within is hidden.

So a mode that counts or charges operations (`collectives.virtual.computation`, torch's own FLOP counter) sees
neither the copies nor the reductions of a collective: those belong to the model of the network.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
from torch.utils._python_dispatch import _disable_current_modes

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")


def hidden_from_modes(function: Callable[P, R]) -> Callable[P, R]:
    """Return *function* so that modes which are active where it is called see nothing of it.

    Inference mode ends there, too: what *function* makes is written later, perhaps by another thread.
    """

    @wraps(function)
    def hidden(*args: P.args, **kwargs: P.kwargs) -> R:
        if torch.is_inference_mode_enabled():
            with torch.inference_mode(False), torch.no_grad():
                return hidden(*args, **kwargs)
        if not torch._C._len_torch_dispatch_stack():
            return function(*args, **kwargs)
        with _disable_current_modes():
            return function(*args, **kwargs)

    return hidden


def calls_hidden_from_modes(cls: type[C]) -> type[C]:
    """Make every public method that *cls* defines itself `hidden_from_modes`, under its other names, too."""
    public = {value for name, value in vars(cls).items() if inspect.isfunction(value) and name[0] != "_"}
    hidden = {function: hidden_from_modes(function) for function in public}
    for name, value in list(vars(cls).items()):
        if inspect.isfunction(value) and value in hidden:
            setattr(cls, name, hidden[value])
    return cls
