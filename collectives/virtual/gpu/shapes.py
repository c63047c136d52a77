"""Results without data: what an operation gives for tensors of which only shapes are known.

FakeTensorMode knows it for every operation, and takes about 200 µs of Python for each.  So what it has found
is kept by the operation and by the kinds of its arguments: of a tensor its shape, strides, offset, type and
device, of whole numbers, names and flags their values, of other numbers only that they are one.  Results of
known calls are made at once: an argument itself, a view of one, or new memory.  Ranks of one run keep them
together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from collectives.virtual.gpu.likeness import Likeness

_KIND = "_kind"
_META = torch.device("meta")
_UNCHANGING = frozenset(
    (int, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
)
_NUMBERS = frozenset((float, complex))
_LISTS = frozenset((list, tuple, torch.Size))
_PLAIN = frozenset((Tensor, torch.nn.Parameter))

_kinds: dict[Any, int] = {}

Key: TypeAlias = tuple[Any, ...]
Maker: TypeAlias = Callable[[Likeness, Sequence[Any], dict[str, Any]], Any]


class _UnkeyedError(Exception):
    """An argument of which not only the kind matters, or nobody knows."""


@dataclass(slots=True)
class Known:
    """A call that has been made before.

    Attributes:
        make: returns its result, given what makes tensors and its arguments; None: FakeTensorMode has to.
        launches: of its kernels, once they have been asked for.
    """

    make: Maker | None
    launches: Any = None


def key_of(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Key | None:
    """Return what a call of the overload *func* is kept by; None if its result may depend on more."""
    try:
        if kwargs:
            named = [(name, _kind_of(value)) for name, value in kwargs.items()]
            return (func, torch.is_inference_mode_enabled(), *map(_kind_of, args), *named)
        return (func, torch.is_inference_mode_enabled(), *map(_kind_of, args))
    except _UnkeyedError:
        return None


def forget_kind(tensor: Tensor) -> None:
    """Note that *tensor* has changed its shape, its strides or its device."""
    tensor.__dict__.pop(_KIND, None)


def _kind_of(value: Any) -> Any:
    kind = type(value)
    if kind is FakeTensor:
        found = value.__dict__.get(_KIND)
        return _new_kind(value) if found is None else found
    if kind in _UNCHANGING:
        return (kind, value)
    if kind in _NUMBERS:
        return kind
    if kind in _LISTS:
        return tuple(map(_kind_of, value))
    if kind in _PLAIN and value.is_meta and value.layout is torch.strided and not value.is_conj():
        return (_META, value.shape, value.stride(), value.storage_offset(), value.dtype)
    raise _UnkeyedError


def _new_kind(tensor: FakeTensor) -> int:
    """Return the number of the kind of *tensor*, which it keeps."""
    if (
        tensor.layout is not torch.strided
        or tensor.constant is not None
        or tensor.is_conj()
        or tensor.is_neg()
    ):
        raise _UnkeyedError
    facts = (tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype, tensor.fake_device)
    number = tensor.__dict__[_KIND] = -1 - _kinds.setdefault(facts, len(_kinds))
    return number


class Shapes:
    """Results without data, of one FakeTensorMode.

    Args:
        mode: makes what has not been made before.
        likeness: makes tensors of *mode*.
        known: calls that have been made before, on this rank or another; by default none.
    """

    def __init__(
        self, mode: FakeTensorMode, likeness: Likeness, known: dict[Key, Known] | None = None
    ) -> None:
        self._mode = mode
        self._likeness = likeness
        self._known = {} if known is None else known

    def of(
        self, func: Any, types: Any, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> tuple[Any, Known | None]:
        """Return the result of a call, and what is kept of it; None if nothing is."""
        key = key_of(func, args, kwargs)
        known = None if key is None else self._known.get(key)
        if known is not None and known.make is not None:
            return known.make(self._likeness, args, kwargs), known
        result = self._mode.dispatch(func, types, args, kwargs)
        if key is not None and known is None:
            known = self._known[key] = Known(self._maker(func, args, kwargs, result))
        return result, known

    def _maker(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> Maker | None:
        """Return what makes *result* again for arguments of the same kinds; None where that is not known."""
        if torch.Tag.inplace_view in func.tags:
            return None
        if type(result) in _LISTS:
            makers = [self._maker_of_one(func, args, kwargs, one) for one in result]
            if None in makers:
                return None
            kind = type(result)
            return lambda own, args, kwargs: kind([make(own, args, kwargs) for make in makers])  # type: ignore[misc]
        return self._maker_of_one(func, args, kwargs, result)

    @staticmethod
    def _maker_of_one(func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> Maker | None:
        if type(result) in _UNCHANGING:
            return lambda own, args, kwargs: result
        if not isinstance(result, FakeTensor):
            return None
        for position, value in enumerate(args):
            if value is result:
                return lambda own, args, kwargs: args[position]
        for name, value in kwargs.items():
            if value is result:
                return lambda own, args, kwargs: kwargs[name]
        try:
            kind = _new_kind(result)
        except _UnkeyedError:
            return None
        if func._schema.is_mutable:
            return None
        shape, strides, offset = tuple(result.shape), result.stride(), result.storage_offset()
        dtype, device = result.dtype, result.fake_device

        base = args[0] if args else None
        if isinstance(base, FakeTensor) and base.untyped_storage()._cdata == result.untyped_storage()._cdata:

            def view(own: Likeness, args: Sequence[Any], kwargs: dict[str, Any]) -> FakeTensor:
                empty = torch.empty(0, dtype=dtype, device=_META)
                return own.made(empty.set_(args[0].untyped_storage(), offset, shape, strides), device, kind)

            return view
        if func.is_view:
            return None

        def new(own: Likeness, args: Sequence[Any], kwargs: dict[str, Any]) -> FakeTensor:
            empty = torch.empty_strided(shape, strides, dtype=dtype, device=_META)
            return own.made(empty, device, kind)

        return new
