"""Keep ``torch.compile`` out of what C++ and compiled code call of ours."""

from __future__ import annotations

from inspect import isfunction
from typing import Any, TypeVar

import torch

Class = TypeVar("Class", bound=type)


def uncompiled(cls: Class) -> Class:
    """Let no public method of *cls* be compiled, under its other names, too, nor what it calls.

    Torch's DDP calls a process group from C++ in the middle of a compiled backward pass, and Dynamo
    would compile that call, whose arguments it does not know.
    """
    disable: Any = torch._disable_dynamo  # type: ignore[attr-defined]  # imports Dynamo at the first call only
    public = {value for name, value in vars(cls).items() if isfunction(value) and name[0] != "_"}
    disabled = {function: disable(function) for function in public}
    for name, value in list(vars(cls).items()):
        if isfunction(value) and value in disabled:
            setattr(cls, name, disabled[value])
    return cls
