"""Values of virtual CUDA tensors: a tensor of the CPU that stands for the data, where it is known.

In a run with data every value is known.  In one without, only those of small tensors are that depend on
nothing unknown: sizes, votes, seeds, the scale of a `GradScaler`.  A view has a view of its base's value,
so what is written through one is seen through the other.  Tensors that share their data share a `_Cell`,
too, which says whether it is known: what is unknown and written through a view makes the base unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

SMALL = 4096
"""Elements, up to which integers are known in a run without data."""
SMALL_FLOATS = 16
"""The same of floating point numbers, which are data as a rule."""
ROUTED = 1 << 20
"""The same of integers where routing is stated: which experts each token goes to."""

_SLOT = "_value_and_cell"


class _Cell:
    """Whether the data that some tensors share is known."""

    __slots__ = ("known",)

    def __init__(self) -> None:
        self.known = True


class _Held(NamedTuple):
    """What a virtual tensor has of its data."""

    value: Tensor
    cell: _Cell

    def __deepcopy__(self, memo: object) -> _Held:
        """Return a copy, which the host does not work for: copying the tensor is the device's."""
        cell = _Cell()
        cell.known = self.cell.known
        with _disable_current_modes():
            return _Held(self.value.clone(), cell)


def is_virtual(tensor: object) -> bool:
    """Return whether *tensor* is one without data of its own."""
    return isinstance(tensor, FakeTensor)


def value_of(tensor: Tensor) -> Tensor | None:
    """Return the value of *tensor* on the CPU, itself if it is a plain one; None where it is not known.

    What is written into it is written into *tensor*.
    """
    if not isinstance(tensor, FakeTensor):
        return tensor
    found = tensor.__dict__.get(_SLOT)
    return found.value if found is not None and found.cell.known else None


def set_value(tensor: Tensor, value: Tensor | None, base: Tensor | None = None) -> None:
    """Let *value*, of the CPU and as large, be that of *tensor*; None: it is not known.

    Args:
        tensor: a virtual one.
        value: which later operations may change.
        base: with which *tensor* shares its data, if it does.
    """
    slots = tensor.__dict__
    if value is None:
        forget(tensor)
    else:
        found = None if base is None else base.__dict__.get(_SLOT)
        slots[_SLOT] = _Held(value, found.cell if found is not None else _Cell())


def forget(tensor: Tensor) -> None:
    """Let the value of *tensor*, and of all with which it shares its data, be unknown."""
    found = tensor.__dict__.get(_SLOT)
    if found is not None:
        found.cell.known = False


def share_value(tensor: Tensor, source: Tensor) -> None:
    """Let *tensor*, whose data is now that of *source*, have its value."""
    found = source.__dict__.get(_SLOT)
    if found is None:
        tensor.__dict__.pop(_SLOT, None)
    else:
        tensor.__dict__[_SLOT] = found


def is_small(tensor: Tensor, integers: int = SMALL) -> bool:
    """Return whether a run without data keeps the value of *tensor*, if known: of so many *integers*."""
    return tensor.numel() <= (SMALL_FLOATS if tensor.dtype.is_floating_point else integers)


def with_values(values: Any) -> Any:
    """Return arguments with the values of virtual tensors in their places.

    Raises:
        UnknownValueError: one is not known.
    """
    if isinstance(values, FakeTensor):
        value = value_of(values)
        if value is None:
            raise UnknownValueError
        return value
    if isinstance(values, (list, tuple)):
        return type(values)(map(with_values, values)) if type(values) in (list, tuple) else values
    if isinstance(values, torch.device):
        return _CPU if values.type == "cuda" else values
    if isinstance(values, Mapping):
        return {name: with_values(value) for name, value in values.items()}
    return values


class UnknownValueError(Exception):
    """The value of a virtual tensor is not known."""


_CPU = torch.device("cpu")


def fake_tensors(values: Sequence[Any]) -> list[FakeTensor]:
    """Return the virtual tensors among *values*, and in lists among them."""
    found: list[FakeTensor] = []
    for value in values:
        if isinstance(value, FakeTensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found += fake_tensors(value)
    return found


def is_plain(value: Any) -> bool:
    """Return whether *value* is a tensor with data of its own."""
    return isinstance(value, Tensor) and not isinstance(value, FakeTensor)
