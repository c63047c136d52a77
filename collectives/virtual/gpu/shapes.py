"""Results without data: what an operation gives for tensors of which only shapes are known.

FakeTensorMode knows it for every operation, and takes about 200 µs of Python for each.  So what it has found
is kept by the operation and by the kinds of its arguments: of a tensor its shape, strides, offset, type and
device, of whole numbers, names and flags their values, of other numbers only that they are one.  Results of
known calls are made at once: an argument itself, a view of one, or new memory.  Ranks of one run keep them
together: what is known of one of the node's devices is known of all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from collectives.virtual.computation.operations import operation_of
from collectives.virtual.gpu.values import fake_tensors, is_plain, value_of

_CPU, _META = torch.device("cpu"), torch.device("meta")
_CONTAINERS = (list, tuple)


class Likeness:
    """Virtual tensors of one FakeTensorMode.

    What torch sets to None on each virtual tensor, its class has from now on: 18 attributes, half a KiB.
    """

    def __init__(self, mode: FakeTensorMode) -> None:
        self._mode = mode
        sample = FakeTensor(mode, torch.empty(0, device=_META), _CPU)
        for name in [name for name, value in vars(sample).items() if value is None]:
            setattr(FakeTensor, name, None)
        self._guard_pointer = (
            torch._C._set_warn_deprecated_on_mutable_data_ptr
            if mode._allow_unsafe_data_ptr_access
            else torch._C._set_throw_on_mutable_data_ptr
        )

    def of(self, tensor: Tensor, device: torch.device, base: FakeTensor | None = None) -> FakeTensor:
        """Return a tensor on *device* that is as *tensor* is.

        Args:
            tensor: of the CPU.
            device: with an index.
            base: of whose value *tensor* is a view, as the result is of *base*; None: of nothing.
        """
        if tensor.layout is not torch.strided:
            return FakeTensor(self._mode, tensor.to(_META), device)
        whole = None if base is None else value_of(base)
        if base is None or whole is None:
            empty = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=_META)
        else:
            size = tensor.element_size()
            before = (
                base.storage_offset() * base.element_size() - whole.storage_offset() * whole.element_size()
            )
            offset = (before + tensor.storage_offset() * size) // size
            empty = torch.empty(0, dtype=tensor.dtype, device=_META)
            empty.set_(base.untyped_storage(), offset, tensor.shape, tensor.stride())
        if tensor.is_conj():
            torch._C._set_conj(empty, True)
        if tensor.is_neg():
            torch._C._set_neg(empty, True)
        return self.made(empty, device)

    def made(self, empty: Tensor, device: torch.device, kind: int | None = None) -> FakeTensor:
        """Return *empty*, of the meta device, as a tensor on *device*; *kind*: its number in `shapes`."""
        made: Any = Tensor._make_subclass(
            FakeTensor, empty, False, dispatch_device=True, device_for_backend_keys=device
        )
        self._guard_pointer(made)
        made.__dict__.update(fake_mode=self._mode, _fake_device=device, _kind=kind)
        return made  # type: ignore[no-any-return]

    def faked(self, args: Any) -> Any:
        """Return arguments with tensors without data in the places of plain ones of the CPU."""
        return tuple(map(self._fake_of, args))

    def _fake_of(self, value: Any) -> Any:
        if is_plain(value) and value.device.type == "cpu":
            return self.of(value, _CPU)
        if type(value) in _CONTAINERS and any(map(is_plain, value)):
            return type(value)(map(self._fake_of, value))
        return value


_KIND = "_kind"
_UNCHANGING = frozenset(
    (int, bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)
)
_NUMBERS = frozenset((float, complex))
_LISTS = frozenset((list, tuple, torch.Size))
_PLAIN = frozenset((Tensor, torch.nn.Parameter))

_kinds: dict[Any, int] = {}
_facts: list[Any] = []
"""What each kind is, by its number: shape, strides, offset, type and device."""

Key: TypeAlias = tuple[Any, ...]
Maker: TypeAlias = Callable[[Likeness, Sequence[Any], dict[str, Any]], Any]
Recipe: TypeAlias = Callable[[torch.device | None], Maker]
"""Returns what makes a result on a CUDA device; None: on that on which it has been made before."""


class _UnkeyedError(Exception):
    """An argument of which not only the kind matters, or nobody knows."""


@dataclass(slots=True)
class Known:
    """A call that has been made before.

    Attributes:
        make: returns its result, given what makes tensors and its arguments; None: FakeTensorMode has to.
        recipe: of the same on other devices; None: FakeTensorMode has to.
        launches: of its kernels, once they have been asked for.
        terms: whether the script allowed tfloat32 then, and inductor padded.
    """

    make: Maker | None
    recipe: Recipe | None
    launches: Any = None
    terms: tuple[bool, bool] = (False, False)


def key_of(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Key | None:
    """Return what a call of the overload *func* is kept by; None if its result may depend on more."""
    settings = func, torch.is_inference_mode_enabled(), torch.get_default_dtype()
    try:
        if kwargs:
            named = [(name, _kind_of(value)) for name, value in kwargs.items()]
            return (*settings, *map(_kind_of, args), *named)
        return (*settings, *map(_kind_of, args))
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
    number = tensor.__dict__[_KIND] = _number_of(facts)
    return number


def _number_of(facts: Any) -> int:
    """Return the number of a kind, below 0, as sizes are not."""
    number = _kinds.setdefault(facts, len(_kinds))
    if number == len(_facts):
        _facts.append(facts)
    return -1 - number


def _anywhere(kind: Any, devices: set[torch.device]) -> Any:
    """Return *kind* without the CUDA devices in it, which are added to *devices*."""
    if type(kind) is int and kind < 0:
        *facts, device = _facts[-1 - kind]
        if device.type != "cuda":
            return kind
        devices.add(device)
        return tuple(facts)
    if type(kind) is not tuple or not kind:
        return kind
    if kind[0] is torch.device and kind[1].type == "cuda":
        devices.add(kind[1])
        return torch.device
    return kind if type(kind[0]) is type else tuple(_anywhere(part, devices) for part in kind)


class Shapes:
    """Results without data, of one FakeTensorMode."""

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
        if key is None:  # as of tensors of the CPU
            args = self._likeness.faked(args)
            key = key_of(func, args, kwargs)
        known = None if key is None else self._known.get(key)
        if known is not None and known.make is not None:
            return known.make(self._likeness, args, kwargs), known
        if key is None or known is not None:
            return self._dispatched(func, types, args, kwargs), known

        devices: set[torch.device] = set()
        anywhere = tuple(_anywhere(kind, devices) for kind in key)
        elsewhere = self._known.get(anywhere) if len(devices) == 1 else None
        if elsewhere is not None and elsewhere.recipe is not None:
            make = elsewhere.recipe(devices.pop())
            known = self._known[key] = Known(make, elsewhere.recipe, elsewhere.launches, elsewhere.terms)
            return make(self._likeness, args, kwargs), known
        result = self._dispatched(func, types, args, kwargs)
        is_resized = operation_of(func).resizes and key_of(func, args, kwargs) != key
        recipe = None if is_resized else self._recipe(func, args, kwargs, result)
        known = self._known[key] = Known(None if recipe is None else recipe(None), recipe)
        if len(devices) == 1:
            self._known[anywhere] = known
        return result, known

    def _dispatched(self, func: Any, types: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Return the result of a call that is not known; a tensor given as ``out`` may be resized by it."""
        result = self._mode.dispatch(func, types, args, kwargs)
        if operation_of(func).resizes:
            for tensor in fake_tensors((*args, *kwargs.values())):
                forget_kind(tensor)
        return result

    def _recipe(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> Recipe | None:
        """Return how to make *result* again for arguments of the same kinds; None where that is not known."""
        if torch.Tag.inplace_view in func.tags:
            return None
        if type(result) in _LISTS:
            recipes = [self._recipe_of_one(func, args, kwargs, one) for one in result]
            known = [recipe for recipe in recipes if recipe is not None]
            return _recipe_of_list(type(result), known) if len(known) == len(recipes) else None
        return self._recipe_of_one(func, args, kwargs, result)

    @staticmethod
    def _recipe_of_one(func: Any, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> Recipe | None:
        if type(result) in _UNCHANGING:
            return lambda _: lambda own, args, kwargs: result
        if not isinstance(result, FakeTensor):
            return None
        for position, value in enumerate(args):
            if value is result:
                return _recipe_of_argument(position)
        for name, value in kwargs.items():
            if value is result:
                return _recipe_of_option(name)
        if func._schema.is_mutable:
            return None
        try:
            facts = _facts[-1 - _new_kind(result)]
        except _UnkeyedError:
            return None
        base = args[0] if args else None
        is_view = (
            isinstance(base, FakeTensor) and base.untyped_storage()._cdata == result.untyped_storage()._cdata
        )
        return None if func.is_view and not is_view else _recipe_of_tensor(is_view, *facts)


def _recipe_of_argument(position: int) -> Recipe:
    return lambda _: lambda own, args, kwargs: args[position]


def _recipe_of_option(name: str) -> Recipe:
    return lambda _: lambda own, args, kwargs: kwargs[name]


def _recipe_of_tensor(
    is_view: bool, size: torch.Size, strides: Any, offset: int, dtype: torch.dtype, before: torch.device
) -> Recipe:
    """Return how to make a tensor of these facts: a view of the first argument, or new memory."""
    shape = tuple(size)

    def recipe(there: torch.device | None) -> Maker:
        device = before if there is None or before.type != "cuda" else there
        kind = _number_of((size, strides, offset, dtype, device))

        def view(own: Likeness, args: Sequence[Any], kwargs: dict[str, Any]) -> FakeTensor:
            empty = torch.empty(0, dtype=dtype, device=_META)
            return own.made(empty.set_(args[0].untyped_storage(), offset, shape, strides), device, kind)

        def new(own: Likeness, args: Sequence[Any], kwargs: dict[str, Any]) -> FakeTensor:
            empty = torch.empty_strided(shape, strides, dtype=dtype, device=_META)
            return own.made(empty, device, kind)

        return view if is_view else new

    return recipe


def _recipe_of_list(kind: Any, recipes: Sequence[Recipe]) -> Recipe:
    """Return how to make several results."""

    def recipe(there: torch.device | None) -> Maker:
        makers = [one(there) for one in recipes]
        return lambda own, args, kwargs: kind([make(own, args, kwargs) for make in makers])

    return recipe
