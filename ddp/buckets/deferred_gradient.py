"""Deferred gradients: they stand in ``parameter.grad`` while the gradient travels, and refuse to be used.

Were it None, ``torch.nn.utils.clip_grad_norm_`` would find nothing to clip, and another optimizer nothing to
do, without a word.  It has no memory: a tensor whose every operation raises, in C++ too, such as when a
second backward pass is about to be added to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.nn import Parameter
from torch.utils import _pytree as pytree

from ddp.errors import DDPError


class DeferredGradient(torch.Tensor):
    """Stands for the gradient of *parameter*, which is called *name*.

    Raises:
        DDPError: from every operation.
    """

    _name: str

    @staticmethod
    def __new__(cls, parameter: Parameter, name: str) -> DeferredGradient:
        """Make one of the parameter's shape, strides, dtype and device."""
        own: DeferredGradient = torch.Tensor._make_wrapper_subclass(
            cls,
            parameter.shape,
            strides=parameter.stride(),
            dtype=parameter.dtype,
            device=parameter.device,
        )
        own._name = name
        return own

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch's has no types
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Refuse *func*."""
        leaves = pytree.tree_leaves((args, kwargs))
        name = next(leaf._name for leaf in leaves if isinstance(leaf, cls))
        raise DDPError(
            f"the gradient of {name} is on its way, and only the OverlappedOptimizer may use it "
            f"({func} would): call its step() after each backward pass, and no other optimizer's; clip by "
            "its clip_grad_norm_(); accumulate in no_sync(); to look at gradients, use strategy='wait_free'"
        )

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]  # nor has this
        """Say what it is."""
        return f"<the gradient of {self._name}, on its way>"


class DeferredGradients:
    """Puts a `DeferredGradient` in the place of gradients that are taken, and takes it away again.

    Args:
        parameters: by name; their indices count in this order.
    """

    def __init__(self, parameters: Mapping[str, Parameter]) -> None:
        self._parameters = list(parameters.values())
        self._deferred = [DeferredGradient(own, name) for name, own in parameters.items()]

    def put(self, index: int) -> None:
        """Take the gradient of parameter *index* out of its place."""
        self._parameters[index].grad = self._deferred[index]

    def remove(self) -> None:
        """Leave the places empty."""
        for parameter, deferred in zip(self._parameters, self._deferred, strict=True):
            if parameter.grad is deferred:
                parameter.grad = None
