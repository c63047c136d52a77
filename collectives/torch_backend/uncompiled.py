"""Methods that ``torch.compile`` leaves alone, as C++ and compiled code call them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from inspect import isfunction
from typing import Any, TypeVar

import torch

Class = TypeVar("Class", bound=type)


def uncompiled(cls: Class) -> Class:
    """Let no public method of *cls* be compiled, under its other names, too, nor what it calls.

    Torch's DDP calls a process group from C++ in the middle of a compiled backward pass, and Dynamo
    would compile that call, whose arguments it does not know.
    """
    public = {value for name, value in vars(cls).items() if isfunction(value) and name[0] != "_"}
    disabled = {function: _disabled(function) for function in public}
    for name, value in list(vars(cls).items()):
        if isfunction(value) and value in disabled:
            setattr(cls, name, disabled[value])
    return cls


def _disabled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return *function*, which Dynamo leaves alone if anybody has imported it, which takes a second."""
    disable: Any = torch._disable_dynamo  # type: ignore[attr-defined]
    apart = disable(function)

    @wraps(function)
    def called(*args: Any, **options: Any) -> Any:
        return (apart if "torch._dynamo" in sys.modules else function)(*args, **options)

    return called
