"""Dispatch mode of a rank's thread on which CUDA tensors are virtual: each operation, in its steps.

    on the host   plain tensors of the CPU are what they are; large ones have no data in a run without data
    the result    by FakeTensorMode, which has every operation's shapes
    its value     by the same operation on values, where they are known (`collectives.virtual.gpu.values`)
    its cost      the launches of the device's kernels, or the host's time (`collectives.virtual.computation`)

FakeTensorMode itself is not among the modes of the thread: what it does to find shapes is not the script's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from math import prod
from typing import Any, Protocol

import torch
from torch import Tensor
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from collectives.virtual.computation.compiled import Fusing
from collectives.virtual.computation.passes import current_pass
from collectives.virtual.computation.totals import Totals
from collectives.virtual.gpu import copies, data_dependent
from collectives.virtual.gpu.accelerator import check_ordinal
from collectives.virtual.gpu.computing import compute
from collectives.virtual.gpu.knowledge import Knowledge, knowledge_of
from collectives.virtual.gpu.rules import LARGE, LARGE_OBJECTS, RULES
from collectives.virtual.gpu.shapes import Key, Known, Shapes, forget_kind
from collectives.virtual.gpu.values import (
    UnknownValueError,
    fake_tensors,
    first_tensor,
    is_plain,
    set_value,
    value_of,
    with_values,
)
from collectives.virtual.notices import Notices
from collectives.virtual.streams.gpu import Gpu

_DENSE = torch._C.DispatchKey.CompositeExplicitAutograd
_PLAIN: Any = torch.Tensor.__torch_dispatch__
_CPU, _META = torch.device("cpu"), torch.device("meta")
_aten = torch.ops.aten
_DEVICE_OF = torch.ops.prim.device.default
_NO_OPTIONS: dict[str, Any] = {}


class Costs(Protocol):
    """Kernels and times of a device (`collectives.virtual.computation.launches.Launches`)."""

    def of(self, func: Any, args: Any, kwargs: Any, result: Any) -> Any:
        """Return the launches of an operation on the device."""

    def host_ps(self, func: Any, args: Any, kwargs: Any, result: Any) -> int:
        """Return what an operation on tensors of the CPU takes of the host."""

    def copy_ps(self, nbytes: int) -> int:
        """Return what a transfer between host and device takes."""


class CudaMode(TorchDispatchMode):
    """Carries out operations of a rank that has virtual CUDA tensors.

    Args:
        gpu: of the rank.
        costs: of operations.
        totals: are added up.
        has_data: whether values are computed.
        notices: of the run.
        known_shapes: of calls that have been made before, which ranks of a run keep together.

    Attributes:
        fake: makes results without data.
        born: called with each new tensor of the device, and the operation that made it.
        is_functional: a functional collective is being carried out.
    """

    supports_higher_order_operators = True

    def __init__(
        self,
        gpu: Gpu,
        costs: Costs,
        totals: Totals,
        has_data: bool,
        notices: Notices,
        known_shapes: dict[Key, Known],
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.gpu = gpu
        self.costs = costs
        self._fusing = Fusing(gpu)
        self.totals = totals
        self.has_data = has_data
        self.fake = FakeTensorMode(allow_non_fake_inputs=True)
        self.shapes = Shapes(self.fake, known_shapes)
        self.born: list[Callable[[Tensor, Any], None]] = []
        self.is_functional = False
        self.notices = notices
        self._is_charged = True
        self._selects_all = False

    @contextlib.contextmanager
    def uncharged(self) -> Iterator[None]:
        """Let operations cost nothing, and allocate nothing, while the body runs: torch looks for shapes."""
        before, self._is_charged = self._is_charged, False
        try:
            yield
        finally:
            self._is_charged = before

    @contextlib.contextmanager
    def selecting_all(self) -> Iterator[None]:
        """Let masks whose values are not known select everything while the body runs."""
        before, self._selects_all = self._selects_all, True
        try:
            yield
        finally:
            self._selects_all = before

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

        kwargs = self._with_index(kwargs) if kwargs else _NO_OPTIONS
        known = knowledge_of(func)
        if known.communicates:
            return self._communicate(func, args, kwargs)
        if not has_fake and self._is_hosts(args, kwargs):
            return self._on_host(func, args, kwargs)
        if known.decomposes:
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        rule = RULES.get(func)
        if rule is not None:
            result = rule(self, func, types, args, kwargs)
            if result is not NotImplemented:
                return result
        return self.on_device(known, func, types, args, kwargs)

    def _communicate(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Call the kernel in C++ of a collective, what it calls in turn comes here again."""
        tensors = fake_tensors(args)
        tensor = next((value for value in args if isinstance(value, Tensor)), None)
        if tensor is None:
            if not tensors:
                return func(*args, **kwargs)
            tensor = tensors[0]
        keys = (torch._C._dispatch_keys(tensor) - _PYTHON) & torch._C._after_ADInplaceOrView_keyset
        before, self.is_functional = self.is_functional, "functional" in func.namespace
        try:
            with self:
                return func.redispatch(keys, *args, **kwargs)
        finally:
            self.is_functional = before

    @staticmethod
    def _with_index(kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return options with the current device where they say cuda alone.

        FakeTensorMode would keep for all ranks what that is on one.
        """
        device = kwargs.get("device")
        if device is None or device.type != "cuda":
            return kwargs
        if device.index is not None:
            check_ordinal(device.index)
            return kwargs
        return {**kwargs, "device": torch.device("cuda", torch.cuda.current_device())}

    # ---------------------------------------------------------------- on the host

    @staticmethod
    def _is_hosts(args: Any, kwargs: Any) -> bool:
        """Return whether an operation without virtual arguments stays on the host."""
        device = kwargs.get("device")
        return device is None or device.type != "cuda"

    def _on_host(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Carry out an operation on plain tensors of the CPU, or of none."""
        if kwargs.get("pin_memory"):
            return copies.mark_pinned(self._on_host(func, args, {**kwargs, "pin_memory": False}))
        if not self.has_data and _makes_large(args, kwargs) and kwargs.get("device") != _META:
            return self.fake.dispatch(func, (), args, kwargs)
        if func is _aten.is_pinned.default:
            return copies.is_pinned(args[0])
        if func is _aten._pin_memory.default:
            return copies.pinned(args[0])
        result = func(*args, **kwargs)
        if self._is_charged and not _is_on_meta(result, args):
            duration_ps = self.costs.host_ps(func, args, kwargs, result)
            if duration_ps:
                self.gpu.host_work(func.__name__, duration_ps)
        return result

    # ---------------------------------------------------------------- on the device

    def on_device(self, known: Knowledge, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Carry out an operation with virtual tensors among its arguments or results."""
        if known.depends_on_data and (not known.selects or _has_masks(args)):
            return self._depending(func, args, kwargs)
        if kwargs.get("pin_memory"):
            kwargs = {**kwargs, "pin_memory": False}
        options = kwargs
        if kwargs.get("generator") is not None:
            options = {**kwargs, "generator": None}
        shaped, call = self.shapes.of(func, types, self.faked(args), options)
        if known.mutates:
            shaped = _same(shaped, args)
            if known.mutates_kinds:
                for tensor in fake_tensors(args):
                    forget_kind(tensor)
        compute(known, func, args, kwargs, shaped, self.has_data)
        if self._is_charged:
            if known.selects and _has_masks(args):
                self.gpu.host_wait(self.gpu.current, func.overloadpacket.__name__)
            self._charge(known, call, func, args, kwargs, shaped)
        return self._plain(shaped) if self.has_data and not (known.is_view or known.mutates) else shaped

    @staticmethod
    def _plain(result: Any) -> Any:
        """Return *result*, or its value where it is a new tensor of the CPU: that is an ordinary one."""
        if isinstance(result, FakeTensor) and result.fake_device == _CPU:
            value = value_of(result)
            return result if value is None else value
        return result

    def _charge(
        self, known: Knowledge, call: Known | None, func: Any, args: Any, kwargs: Any, result: Any
    ) -> None:
        """Let the rank pay for an operation, and note what it has allocated."""
        tensor = first_tensor((result, args))
        if tensor is None:
            return
        if tensor.device.type == "cuda":
            if self.born and not known.is_view:
                for new in fake_tensors(result if isinstance(result, (list, tuple)) else (result,)):
                    self.bear(new, func)
            self._launch(func, args, kwargs, result, call)
        elif not known.is_view and not tensor.is_meta:
            duration_ps = self.costs.host_ps(func, args, kwargs, result)
            if duration_ps:
                self.gpu.host_work(func.__name__, duration_ps)

    def _launch(self, func: Any, args: Any, kwargs: Any, result: Any, call: Known | None = None) -> None:
        """Launch the kernels of an operation on the current stream."""
        if self._fusing.takes(func, args, kwargs, result, current_pass()):
            return
        if call is None or call.launches is None:
            launches = self.costs.of(func, args, kwargs, result)
            if call is not None and not knowledge_of(func).computes:  # that depends on what scripts allow
                call.launches = launches
        else:
            launches = call.launches
        if not launches:
            return
        gpu, totals = self.gpu, self.totals
        part = gpu.part = current_pass()
        for launch in launches:
            gpu.launch(launch.name, launch.duration_ps)
            totals.add(launch.flops, launch.nbytes, launch.dtype, part)

    def transfer(self, nbytes: int, direction: str, waits: bool) -> None:
        """Charge a transfer between host and device, in words such as ``HtoD``; *waits*: the host does."""
        if not self._is_charged:
            return
        self.gpu.launch(f"Memcpy {direction}", self.costs.copy_ps(nbytes), kind="copy")
        if waits:
            self.gpu.host_wait(self.gpu.current, f"copy {direction}")

    def bear(self, tensor: Tensor, func: Any) -> None:
        """Note a new tensor of the device, which *func* has made."""
        for listener in self.born if self._is_charged else ():
            listener(tensor, func)

    def faked(self, args: Any) -> Any:
        """Return arguments with tensors without data in the places of plain ones of the CPU."""
        if not any(type(value) in _CONTAINERS or is_plain(value) for value in args):
            return args
        return tuple(self._fake_of(value) for value in args)

    def _fake_of(self, value: Any) -> Any:
        if is_plain(value) and value.device.type == "cpu":
            return self.without_data(value, _CPU)
        if type(value) in _CONTAINERS and any(map(is_plain, value)):
            return type(value)(map(self._fake_of, value))
        return value

    def without_data(self, tensor: Tensor, device: torch.device) -> FakeTensor:
        """Return a tensor on *device* that is as large as *tensor*, and shares nothing with it."""
        empty = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=_META)
        return FakeTensor(self.fake, empty, device)

    def _depending(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Carry out an operation whose results are as large as the data says; the host waits for it."""
        tensor = first_tensor(args)
        assert tensor is not None
        try:
            values, options = with_values(args), with_values(kwargs)
            result = _wrapped(self, func(*values, **options), tensor.device)
        except UnknownValueError:
            if func is not _aten.index.Tensor or not self._selects_all:
                data_dependent.refuse(f"{func.overloadpacket.__name__}, whose result")
            result = self._all_selected(tensor, *args[1])
        if self._is_charged and tensor.device.type == "cuda":
            self._launch(func, args, kwargs, result)
            self.gpu.host_wait(self.gpu.current, func.overloadpacket.__name__)
        return result

    def _all_selected(self, tensor: Tensor, mask: Tensor) -> FakeTensor:
        """Return what ``tensor[mask]`` is where the mask is true everywhere."""
        shape = (mask.numel(), *tensor.shape[mask.dim() :])
        return FakeTensor(self.fake, torch.empty(shape, dtype=tensor.dtype, device=_META), tensor.device)


_CONTAINERS = (list, tuple)
_PYTHON = torch._C.DispatchKeySet(torch._C.DispatchKey.Python) | torch._C.DispatchKeySet(
    torch._C.DispatchKey.PythonTLSSnapshot
)
_MASKS = (torch.bool, torch.uint8)


def _is_on_meta(result: Any, args: Any) -> bool:
    """Return whether a call moves nothing, as it is about shapes only."""
    tensor = first_tensor((result, args))
    return tensor is not None and tensor.is_meta


def _makes_large(args: Any, kwargs: Any) -> bool:
    """Return whether a call without tensors makes one that is too large for data.

    Bytes are objects as a rule, which ranks gather.
    """
    largest = LARGE_OBJECTS if kwargs.get("dtype") is torch.uint8 else LARGE
    for value in args:
        if isinstance(value, Tensor):
            return False
        if isinstance(value, (list, tuple)):
            return all(isinstance(size, int) for size in value) and prod(value) > largest
    return False


def _same(result: Any, args: Any) -> Any:
    """Return *result* of an operation in place, which is the script's own argument."""
    return args[0] if isinstance(result, FakeTensor) and is_plain(args[0]) else result


def _has_masks(args: Any) -> bool:
    """Return whether an operation selects elements by truth values."""
    return any(isinstance(index, Tensor) and index.dtype in _MASKS for index in args[1])


def _wrapped(mode: CudaMode, computed: Any, device: torch.device) -> Any:
    """Return results as virtual tensors of *device*, with their values."""
    if isinstance(computed, Tensor):
        tensor = mode.without_data(computed, device)
        set_value(tensor, computed)
        return tensor
    if isinstance(computed, (list, tuple)):
        return type(computed)(_wrapped(mode, value, device) for value in computed)
    return computed
