"""Modules that run on a rank: their full names, and for which one an operation is done.

In a forward pass that is the innermost module that runs.  In a backward pass it is the module of whose
output a gradient has come last, which is right for modules that run one after another; operations between
two modules count for the later one.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from collectives.virtual.computation.operations import tensors_in

_WRAPPERS = ("_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod")


class ModuleScopes:
    """The modules of one rank.

    Attributes:
        has_grad: gradients were wanted when the outermost module that ran last was called.
    """

    def __init__(self) -> None:
        self.has_grad = True
        self._names: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()
        self._roots: WeakKeyDictionary[nn.Module, None] = WeakKeyDictionary()
        self._running: list[str] = []
        self._backward = ""

    @property
    def is_running(self) -> bool:
        """Whether a forward pass of a module is going on."""
        return bool(self._running)

    @property
    def current(self) -> str:
        """The full name of the module for which an operation is done now; empty for none."""
        if self._running:
            return self._running[-1]
        return self._backward if is_backward() else ""

    def name_of(self, module: nn.Module) -> str:
        """Return the module's full name, as far as it is known."""
        return self._names.get(module, "")

    def enter(self, module: nn.Module) -> bool:
        """Note that *module* runs; return whether it is an outermost one of which nothing has run before.

        A part of a module that has run keeps its name there when it runs alone, as when it is checkpointed.
        """
        is_new = not self._running and module not in self._roots and module not in self._names
        if is_new:
            self._roots[module] = None
            for name, inner in module.named_modules():
                self._names[inner] = _clean(name) or type(module).__name__
        elif module not in self._names:
            self._names[module] = f"{self.current}.{type(module).__name__}".lstrip(".")

        if not self._running and not is_backward():
            self.has_grad = torch.is_grad_enabled()
        self._running.append(self._names[module])
        return is_new

    def leave(self, output: Any) -> None:
        """Note that the innermost module has run, with this *output*."""
        name = self._running.pop()
        for tensor in tensors_in(output):
            if tensor.requires_grad:
                tensor.register_hook(lambda grad: self._arrive(name))
                break

    def end_pass(self) -> None:
        """Forget what runs: a step of an optimizer is where no module does."""
        self._running.clear()
        self._backward = ""

    def _arrive(self, name: str) -> None:
        self._backward = name


def is_backward() -> bool:
    """Return whether autograd is going backwards on this thread."""
    return bool(torch._C._current_graph_task_id() != -1)


def _clean(name: str) -> str:
    parts = name.split(".")
    return ".".join(part for part in parts if part not in _WRAPPERS)
