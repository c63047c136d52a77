"""Configuration of a module: what decides which operations a call issues, given inputs of known kinds.

Equal are modules of one class with equal parameters, buffers and attributes, and so on for all modules in it.
Parameters and buffers are equal by shape, strides, type, device, and whether they want a gradient; attributes
by value, objects of the script's classes by their attributes, functions by their code, all else by identity,
if it cannot change.  What two places of one module share, they share in the other.
Ranks have classes of their own of one script: these are equal by name and by what they have.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections import deque
from collections.abc import Hashable, Iterator
from pathlib import Path
from types import FunctionType, MethodType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

import collectives
from collectives.virtual.gpu.shapes import key_anywhere
from collectives.virtual.gpu.values import value_of

ATTRIBUTES_OF_MODULES = frozenset(vars(nn.Module())) - {"training"}
"""Names of what every module has, of which parameters, buffers, modules and hooks are looked at apart."""
HOOKS = tuple(sorted(name for name in ATTRIBUTES_OF_MODULES if name.startswith(("_forward", "_backward"))))
"""Of these, names of hooks that are called where the module is, and what is said of them."""
_STATE = "__composable_api_state_key"
"""Begin of names under which torch's systems keep what is theirs at a module."""
_VALUES = (
    int, bool, str, bytes, float, complex, type(None), torch.dtype, torch.device, torch.Size, torch.layout,
    torch.memory_format,
)  # fmt: skip
_DEPTH = 6
_OF_CLASSES = frozenset(
    (
        "__abstractmethods__", "__annotations__", "__dict__", "__doc__", "__match_args__", "__module__",
        "__weakref__", "_autograd_function_id", "_backward_cls",
    )
)  # fmt: skip
"""Names of classes' attributes by which their objects do nothing else."""
_TRUSTED = tuple(f"{Path(package.__path__[0])}/" for package in (torch, collectives))
_FUNCTIONAL = frozenset(
    (
        "argparse", "builtins", "cmath", "collections", "enum", "functools", "itertools", "math", "operator",
        "types", "typing",
    )
)  # fmt: skip


class UnknownConfigurationError(Exception):
    """Something of a module cannot be compared."""


class _Same:
    """An object that equals itself alone."""

    __slots__ = ("own",)

    def __init__(self, own: object) -> None:
        self.own = own

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.own is other.own

    def __hash__(self) -> int:
        return id(self.own)


def configuration_of(module: nn.Module, is_outermost: bool = True) -> Hashable:
    """Return what equals that of another module if both issue the same.

    Args:
        module: whose parameters are all on one device.
        is_outermost: its hooks run outside of what is compared.

    Raises:
        UnknownConfigurationError: something of it cannot be compared, or a value is known that may decide.
    """
    own = vars(module)
    shared = _shared(module) if is_outermost else ()
    hooks = (
        ()
        if is_outermost
        else tuple(
            value_key(tuple(own[name].values()) if isinstance(own[name], dict) else own[name])
            for name in HOOKS
        )
    )
    return (
        class_key(type(module)),
        shared,
        hooks,
        tuple((name, _tensor_key(value)) for name, value in module._parameters.items()),
        tuple((name, _tensor_key(value)) for name, value in module._buffers.items()),
        tuple((name, value_key(value)) for name, value in attributes_of(module)),
        tuple(
            (name, None if inner is None else configuration_of(inner, is_outermost=False))
            for name, inner in module._modules.items()
        ),
    )


def _shared(module: nn.Module) -> tuple[int, ...]:
    """Return which modules, parameters and buffers are the same, by the order in which they come first."""
    numbers: dict[int, int] = {}
    return tuple(
        numbers.setdefault(id(own), len(numbers))
        for _, inner in module.named_modules(remove_duplicate=False)
        for own in (inner, *inner._parameters.values(), *inner._buffers.values())
        if own is not None
    )


def attributes_of(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield names and values of what a module has besides parameters, buffers, modules and hooks."""
    for name, value in vars(module).items():
        if name not in ATTRIBUTES_OF_MODULES and not name.startswith(_STATE):
            yield name, value


def _tensor_key(tensor: Tensor | None) -> Hashable:
    """Return what is compared of a tensor without a value."""
    if tensor is None:
        return None
    if type(tensor) is not FakeTensor or value_of(tensor) is not None:
        raise UnknownConfigurationError
    key = key_anywhere((tensor,), tensor.fake_device)
    if key is None:
        raise UnknownConfigurationError
    return key, tensor.requires_grad


def value_key(value: Any, depth: int = _DEPTH) -> Hashable:
    """Return what equals that of another value that is the same to a module.

    Raises:
        UnknownConfigurationError: it is a tensor with a value, too deep, or may change unseen.
    """
    kind = type(value)
    if kind in _VALUES:
        return kind, value
    if isinstance(value, Tensor):
        return _tensor_key(value)
    if not depth:
        raise UnknownConfigurationError
    depth -= 1
    if isinstance(value, (list, tuple, deque)):
        return class_key(kind, depth), tuple(value_key(one, depth) for one in value)
    if isinstance(value, (set, frozenset)):
        return class_key(kind, depth), frozenset(value_key(one, depth) for one in value)
    if isinstance(value, dict):
        return kind, tuple((value_key(name, depth), value_key(one, depth)) for name, one in value.items())
    if kind is FunctionType and _is_shared(value):
        return _Same(value)
    if kind is FunctionType:
        cells = tuple(
            cell.cell_contents
            for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
            if name != "__class__"
        )
        told = () if is_trusted_file(value.__code__.co_filename) else (value.__kwdefaults__, vars(value))
        own = value.__defaults__, cells, *told
        return value.__code__, *(value_key(one, depth) for one in own)
    if kind is MethodType:
        return value_key(value.__func__, depth), value_key(value.__self__, depth)
    if kind is functools.partial:
        return kind, value_key((value.func, value.args, value.keywords), depth)
    if kind in (property, staticmethod, classmethod):
        return kind, value_key(value.fget if kind is property else value.__func__, depth)
    if isinstance(value, type):
        return class_key(value, depth)
    if isinstance(value, (argparse.Namespace, SimpleNamespace)):
        return kind, value_key(vars(value), depth)
    if not issubclass(kind, Hashable) and is_trusted(kind.__module__):
        raise UnknownConfigurationError
    if isinstance(value, nn.Module) or is_trusted(kind.__module__) or not hasattr(value, "__dict__"):
        return _Same(value)
    return class_key(kind, depth), value_key(vars(value), depth)


def class_key(kind: type, depth: int = _DEPTH) -> Hashable:
    """Return what equals that of the same class of another rank."""
    if _is_shared(kind):
        return _Same(kind)
    own = tuple(
        (name, value_key(value, depth and depth - 1))
        for name, value in vars(kind).items()
        if not (name in _OF_CLASSES or name.startswith("__dataclass"))
    )
    return kind.__module__, kind.__qualname__, tuple(class_key(base, depth) for base in kind.__bases__), own


def _is_shared(own: type | FunctionType) -> bool:
    """Return whether a class or function is one that a trusted module has for all ranks."""
    home = sys.modules.get(own.__module__)
    return is_trusted(own.__module__) and getattr(home, own.__qualname__, None) is own


@functools.cache
def is_trusted(module: str) -> bool:
    """Return whether what the module of that name has affects nothing but tensors, as far as one can tell.

    These are torch, what stands in its place here, and what Python has for functions alone.
    """
    path = getattr(sys.modules.get(module), "__file__", None) or ""
    return module.partition(".")[0] in _FUNCTIONAL or path.startswith(_TRUSTED)


@functools.cache
def is_trusted_file(path: str) -> bool:
    """Return the same of what the file at *path* defines."""
    functional = (getattr(sys.modules.get(name), "__file__", None) for name in _FUNCTIONAL)
    return path.startswith(_TRUSTED) or path in functional
