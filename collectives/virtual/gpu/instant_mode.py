"""Dispatch mode of a rank whose virtual CUDA tensors have data, and of whose device there is no model.

Nothing is charged, so nobody asks what a kernel of CUDA would do: an operation is carried out on the values
of its arguments, tensors of the CPU, and its results are virtual tensors as large as what comes out.  That
takes a fraction of the time that it takes to find shapes without data (`collectives.virtual.gpu.cuda_mode`),
which is left to operations that change what a tensor says of itself, and to those that torch might refuse.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from collectives.virtual.gpu import copies
from collectives.virtual.gpu.accelerator import check_ordinal
from collectives.virtual.gpu.computing import compute
from collectives.virtual.gpu.cpu_kernels import on_cpu
from collectives.virtual.gpu.knowledge import Knowledge, knowledge_of
from collectives.virtual.gpu.likeness import Likeness
from collectives.virtual.gpu.shapes import forget_kind
from collectives.virtual.gpu.values import fake_tensors, is_plain, set_value, value_of, with_values

_DENSE = torch._C.DispatchKey.CompositeExplicitAutograd
_PLAIN: Any = torch.Tensor.__torch_dispatch__
_aten = torch.ops.aten
_DEVICE_OF = torch.ops.prim.device.default
_NO_OPTIONS: dict[str, Any] = {}
_MIXES = frozenset((_aten.copy_.default, _aten._to_copy.default))
"""Operations on tensors of both devices."""
_PYTHON = torch._C.DispatchKeySet(torch._C.DispatchKey.Python) | torch._C.DispatchKeySet(
    torch._C.DispatchKey.PythonTLSSnapshot
)


class InstantMode(TorchDispatchMode):
    """Carries out operations of a rank that has virtual CUDA tensors with data, at no time.

    Attributes:
        fake: finds shapes, and says what torch refuses.
        is_functional: a functional collective is being carried out.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.fake = FakeTensorMode(allow_non_fake_inputs=True)
        self.is_functional = False
        self._likeness = Likeness(self.fake)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False: the compiler does not look into modes anyway, and would take time to be told so."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is _DEVICE_OF:
            return args[0].device
        if isinstance(func, HigherOrderOperator):
            with self:  # what it consists of comes here again
                return func.py_kernels[_DENSE](*args, **(kwargs or {}))
        has_fake = False
        for kind in types:
            if kind is FakeTensor:
                has_fake = True
            elif kind.__torch_dispatch__ is not _PLAIN:
                return NotImplemented  # a subclass first says of what operations on plain tensors it consists

        kwargs = kwargs or _NO_OPTIONS
        known = knowledge_of(func)
        if known.communicates:
            return self._communicate(func, args, kwargs)
        device = kwargs.get("device")
        if not has_fake and (device is None or device.type != "cuda"):
            return copies.on_host(func, args, kwargs)
        if known.decomposes:
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        return self._on_device(known, func, types, args, kwargs)

    def _communicate(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Call the kernel in C++ of a collective, what it calls in turn comes here again."""
        tensors: list[Any] = fake_tensors(args) or [value for value in args if isinstance(value, Tensor)]
        if not tensors:
            return func(*args, **kwargs)
        keys = (torch._C._dispatch_keys(tensors[0]) - _PYTHON) & torch._C._after_ADInplaceOrView_keyset
        before, self.is_functional = self.is_functional, "functional" in func.namespace
        try:
            with self:
                return func.redispatch(keys, *args, **kwargs)
        finally:
            self.is_functional = before

    def _on_device(self, known: Knowledge, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Carry out an operation with virtual tensors among its arguments or results."""
        if func is _aten._pin_memory.default:
            return args[0]
        if func is _aten.is_pinned.default:
            return False
        tensors = fake_tensors((*args, *kwargs.values()) if kwargs else args)
        if known.mutates_kinds or (func not in _MIXES and _has_plain(args)):
            return self._by_shape(known, func, types, args, kwargs)

        options = with_values(kwargs) if kwargs else kwargs
        if options.get("pin_memory"):
            options["pin_memory"] = False
        computed = on_cpu(func, with_values(args), options)
        changed = [*tensors, *filter(is_plain, args)] if known.mutates else []
        return self._result(known, computed, _device_of(tensors, kwargs), tensors, changed)

    def _result(
        self,
        known: Knowledge,
        computed: Any,
        device: torch.device,
        tensors: list[FakeTensor],
        changed: list[Tensor],
    ) -> Any:
        """Return what was computed as tensors of *device*; an argument where it is one that was *changed*."""
        if isinstance(computed, Tensor):
            for argument in changed:
                if computed is (argument if is_plain(argument) else value_of(argument)):
                    return argument
            if device.type != "cuda":
                return computed
            base = tensors[0] if known.is_view else None
            made = self._likeness.of(computed, device, base)
            set_value(made, computed, base)
            return made
        if isinstance(computed, (list, tuple)):
            return type(computed)([self._result(known, one, device, tensors, changed) for one in computed])
        return computed

    def _by_shape(self, known: Knowledge, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Carry out an operation of which FakeTensorMode says whether it is allowed, and what comes out."""
        options = {name: value for name, value in kwargs.items() if name not in ("generator", "pin_memory")}
        shaped = self.fake.dispatch(func, types, self._likeness.faked(args), options)
        if known.mutates and isinstance(shaped, FakeTensor) and is_plain(args[0]):
            shaped = args[0]
        for tensor in fake_tensors(args) if known.mutates_kinds else ():
            forget_kind(tensor)
        compute(known, func, args, kwargs, shaped, has_data=True)
        return shaped


def _device_of(tensors: list[FakeTensor], kwargs: dict[str, Any]) -> torch.device:
    """Return the device of the results of a call; cuda alone is the current one."""
    device: torch.device | None = kwargs.get("device")
    if device is None:
        return tensors[0].fake_device
    if device.type != "cuda":
        return device
    index: int | None = device.index
    if index is not None:
        check_ordinal(index)
        return device
    return torch.device("cuda", torch.cuda.current_device())


def _has_plain(args: Any) -> bool:
    """Return whether there are tensors of the CPU among arguments, other than numbers."""
    return any(
        (is_plain(value) and value.dim() > 0) or (type(value) in (list, tuple) and _has_plain(value))
        for value in args
    )
