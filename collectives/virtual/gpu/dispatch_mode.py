"""Dispatch mode of a rank's thread on which CUDA tensors are virtual: who carries out which operation.

    subclasses    say themselves first of what operations on plain tensors they consist
    collectives   by their kernels in C++, whose operations come here again
    on the host   plain tensors of the CPU are what they are, of pinned memory if they say so; while they
                  stand for the device's, composites among them go operation by operation
    composites    operation by operation, where torch has them so; a product with its collective (asynchronous
                  tensor parallelism) one after the other
    the rest      on the device

FakeTensorMode itself is not among the modes of the thread: what it does to find shapes is not the script's.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from collectives.virtual.computation.boundaries import cross
from collectives.virtual.computation.operations import Operation, operation_of
from collectives.virtual.gpu import copies
from collectives.virtual.gpu.accelerator import number_of
from collectives.virtual.gpu.data_dependent import refuse_if_sparse
from collectives.virtual.gpu.stock.cuda_only import WHOLE
from collectives.virtual.gpu.values import fake_tensors

_DENSE = torch._C.DispatchKey.CompositeExplicitAutograd
_PLAIN: Any = torch.Tensor.__torch_dispatch__
_DEVICE_OF = torch.ops.prim.device.default
_META_KEYS = torch._C.DispatchKeySet(torch._C.DispatchKey.Meta)
_NO_OPTIONS: dict[str, Any] = {}
_PYTHON = torch._C.DispatchKeySet(torch._C.DispatchKey.Python) | torch._C.DispatchKeySet(
    torch._C.DispatchKey.PythonTLSSnapshot
)


class Execution(Protocol):
    """A way to carry out operations of one rank."""

    @property
    def stands_in(self) -> bool:
        """Whether tensors of the CPU stand for those of the device, as the rank uses none by itself."""

    def on_host(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Carry out an operation on plain tensors of the CPU, or one that makes some."""

    def note_composed(self, func: Any) -> None:
        """Note that *func* comes as the operations of which it consists."""

    def higher_order(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Carry out an operator that takes functions as one kernel; NotImplemented if it is none."""

    def on_device(self, known: Operation, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Carry out an operation with virtual tensors among its arguments or results.

        Devices among *kwargs* have an index where they are CUDA devices.
        """


E = TypeVar("E", bound=Execution)


class DispatchMode(TorchDispatchMode):
    """Hands each operation of a rank that has virtual CUDA tensors to who carries it out.

    Attributes:
        execution: of the rank.
        is_functional: a functional collective is being carried out.
    """

    supports_higher_order_operators = True

    def __init__(self, execution: Execution) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.execution = execution
        self.is_functional = False

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
                result = self.execution.higher_order(func, args, kwargs or {})
                return (
                    func.py_kernels[_DENSE](*args, **(kwargs or {})) if result is NotImplemented else result
                )
        has_fake = False
        for kind in types:
            if kind is FakeTensor:
                has_fake = True
            elif kind.__torch_dispatch__ is not _PLAIN:
                cross()  # a subclass first says of what operations on plain tensors it consists
                return NotImplemented

        kwargs = _with_index(kwargs) if kwargs else _NO_OPTIONS
        known = operation_of(func)
        stands_in = not has_fake and self.execution.stands_in
        if func.namespace == "symm_mem" and func.overloadpacket.__name__.startswith("fused_"):
            self.execution.note_composed(func)
            with self:  # a product and its collective, one after the other
                return func.redispatch(_META_KEYS, *args, **kwargs)
        if known.communicates:
            return func(*args, **kwargs) if stands_in else self._communicate(func, args, kwargs)
        if not has_fake:
            device = kwargs.get("device")
            if device is None or device.type != "cuda":
                result = self._decomposed(known, func, args, kwargs) if stands_in else NotImplemented
                if result is NotImplemented:
                    result = copies.on_host(func, args, kwargs, self.execution.on_host)
                return result
        if known.decomposes:
            result = self._decomposed(known, func, args, kwargs)
            if result is not NotImplemented:
                return result
        if known.is_view and torch.is_inference_mode_enabled() and not args[0].is_inference():
            with (
                torch.inference_mode(False),
                torch.no_grad(),
            ):  # a view of what is no inference tensor is none
                return self.execution.on_device(known, func, types, args, kwargs)
        try:
            return self.execution.on_device(known, func, types, args, kwargs)
        except RuntimeError as error:
            refuse_if_sparse(func, args, kwargs, error)
            raise

    def _decomposed(self, known: Operation, func: Any, args: Any, kwargs: Any) -> Any:
        """Return what the operations give of which *func* is made; ``NotImplemented`` if it is one kernel."""
        if not known.decomposes or func in WHOLE:
            return NotImplemented
        with self:
            return func.decompose(*args, **kwargs)

    def _communicate(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Call the kernel in C++ of a collective; what it calls in turn comes here again."""
        tensors: list[Any] = [value for value in args if isinstance(value, Tensor)] or fake_tensors(args)
        if not tensors:
            return func(*args, **kwargs)
        keys = (torch._C._dispatch_keys(tensors[0]) - _PYTHON) & torch._C._after_ADInplaceOrView_keyset
        before, self.is_functional = self.is_functional, "functional" in func.namespace
        try:
            with self:
                return func.redispatch(keys, *args, **kwargs)
        finally:
            self.is_functional = before


def execution_here(kind: type[E]) -> E | None:
    """Return what carries out the operations of this thread, if it is of that *kind*."""
    for mode in _get_current_dispatch_mode_stack():
        if isinstance(mode, DispatchMode) and isinstance(mode.execution, kind):
            return mode.execution
    return None


def _with_index(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return options with the current device where they say cuda alone, and with the number of any other.

    FakeTensorMode would keep for all ranks what that is on one.
    """
    device = kwargs.get("device")
    if device is None or device.type != "cuda":
        return kwargs
    index = device.index
    number = torch.cuda.current_device() if index is None else number_of(index)
    return kwargs if number == index else {**kwargs, "device": torch.device("cuda", number)}
