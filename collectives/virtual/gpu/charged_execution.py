"""Execution of operations on virtual CUDA tensors at the cost that the model of a GPU tells.

An operation has three parts:

    the result    by FakeTensorMode, which has every operation's shapes
    its value     by the same operation on values, where they are known (`collectives.virtual.gpu.values`)
    its cost      the launches of the device's kernels, or the host's time (`collectives.virtual.computation`)

Tensors of the CPU stand for the device's, and cost what these would, until the rank uses a device by itself
(`collectives.virtual.streams.gpu.Gpu.in_use`); then they are the host's.  Large ones have no data
in a run without data.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from collectives.virtual.computation.compiled import Fusing
from collectives.virtual.computation.cuda.attention import AttentionShape
from collectives.virtual.computation.launches import KernelLaunch, Launches, allows_tf32
from collectives.virtual.computation.operations import (
    Operation,
    first_tensor,
    is_mask,
    operation_of,
    tensors_in,
    waits_for_data,
)
from collectives.virtual.computation.passes import current_pass
from collectives.virtual.computation.totals import Totals
from collectives.virtual.folding.divisions import note_routed_size
from collectives.virtual.gpu import data_dependent
from collectives.virtual.gpu.computing import compute
from collectives.virtual.gpu.cpu_kernels import on_cpu
from collectives.virtual.gpu.flexible_attention import carried_out, is_flexible_attention
from collectives.virtual.gpu.routing import Router
from collectives.virtual.gpu.rules import LARGE, LARGE_OBJECTS, RULES
from collectives.virtual.gpu.shapes import Key, Known, Likeness, Shapes
from collectives.virtual.gpu.values import (
    UnknownValueError,
    fake_tensors,
    set_value,
    value_of,
    with_values,
)
from collectives.virtual.memory.tracker import Memory
from collectives.virtual.notices import Notices
from collectives.virtual.streams.gpu import Gpu

_CPU, _META = torch.device("cpu"), torch.device("meta")
_aten = torch.ops.aten


class ChargedExecution:
    """Carries out operations of a rank on virtual CUDA tensors, at the cost that a model of a GPU tells."""

    def __init__(
        self,
        gpu: Gpu,
        costs: Launches,
        totals: Totals,
        has_data: bool,
        notices: Notices,
        known_shapes: dict[Key, Known],
        memory: Memory,
        router: Router | None = None,
    ) -> None:
        self.gpu = gpu
        self.costs = costs
        self.totals = totals
        self._fusing = Fusing(gpu, costs, totals)
        self.has_data = has_data
        self.fake = FakeTensorMode(allow_non_fake_inputs=True)
        self._likeness = Likeness(self.fake)
        self._shapes = Shapes(self.fake, self._likeness, known_shapes)
        self.born: list[Callable[[Tensor, Any], None]] = [memory.born]
        self.notices = notices
        self.memory = memory
        self.router = router
        self._selects_all = False
        self._on_values = False

    @contextlib.contextmanager
    def selecting_all(self) -> Iterator[None]:
        """Let masks whose values are not known select everything while the body runs."""
        before, self._selects_all = self._selects_all, True
        try:
            yield
        finally:
            self._selects_all = before

    # ---------------------------------------------------------------- on the host

    @property
    def stands_in(self) -> bool:
        """Whether tensors of the CPU stand for those of the device, as the rank uses none by itself."""
        return not self.gpu.in_use

    def on_host(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Carry out an operation on plain tensors of the CPU, or of none."""
        if self._on_values:
            return func(*args, **kwargs)
        if not self.has_data and _makes_large(args, kwargs) and kwargs.get("device") != _META:
            result = self.fake.dispatch(func, (), args, kwargs)
            if self.stands_in:
                self._charge_host(func, args, kwargs, result)
            return result
        result = func(*args, **kwargs)
        if not _is_on_meta(result, args):
            self._charge_host(func, args, kwargs, result)
        return result

    def _charge_host(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Charge an operation on tensors of the CPU: to the host, or to the device for which they stand.

        Counters of steps, which optimizers keep in the host's memory, are the host's in any case.
        """
        gpu, name = self.gpu, func.overloadpacket.__name__
        part = current_pass() if self.stands_in else ""
        if part and not (part == "optimizer" and _are_counters((args, result))):
            if waits_for_data(operation_of(func), args):
                gpu.host_wait(gpu.current, name)
            if not self._fusing.takes(func, args, kwargs, result, part):
                self._issue(self.costs.of(func, args, kwargs, result, self._fusing.pads), part)
            return
        duration_ps = self.costs.host_ps(func, args, kwargs, result)
        if duration_ps:
            gpu.host_work(name, duration_ps)

    def _issue(self, launches: Iterable[KernelLaunch], part: str) -> None:
        """Launch kernels on the current stream, in this *part* of an iteration, and add them up."""
        self.gpu.part = part
        for launch in launches:
            self.gpu.launch(launch.name, launch.duration_ps)
            self.totals.add(launch.flops, launch.nbytes, launch.dtype, part, launch.unmodelled)

    def note_composed(self, func: Any) -> None:
        """Note that an operator, which is one kernel on a device, is charged as what it consists of."""
        if func.name().startswith("symm_mem"):
            self.notices.add("a product with its collective is charged as one after the other", func.name())

    def higher_order(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Carry out an operator that takes functions as one kernel; NotImplemented if it is none."""
        if self._fusing.pads and not self._on_values and is_flexible_attention(func):
            return carried_out(self, func, args, kwargs)
        return NotImplemented

    @contextlib.contextmanager
    def on_values(self) -> Iterator[None]:
        """Let operations be carried out on values, at no cost, while the body runs.

        They raise `UnknownValueError` where a value is not known.
        """
        before, self._on_values = self._on_values, True
        try:
            yield
        finally:
            self._on_values = before

    def launch_block_masked(
        self, name: str, query: Tensor, shape: AttentionShape, flops: int, nbytes: int, part: str
    ) -> None:
        """Launch the kernel of attention with a mask of blocks."""
        self._issue((self.costs.block_masked(name, query, shape, flops, nbytes),), part)

    def note_unmodelled(self, name: str) -> None:
        """Note a call of an operator whose cost is not known."""
        self.totals.unmodelled[self.costs.unmodelled(name)] += 1

    # ---------------------------------------------------------------- on the device

    def on_device(self, known: Operation, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Carry out an operation with virtual tensors among its arguments or results, by its rule if any."""
        if self._on_values:
            return on_cpu(func, with_values(args), with_values(kwargs))
        rule = RULES.get(func)
        if rule is not None:
            result = rule(self, func, types, args, kwargs)
            if result is not NotImplemented:
                return result
        return self.as_any_other(known, func, types, args, kwargs)

    def as_any_other(self, known: Operation, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Carry out an operation that has no rule of its own, or whose rule leaves it alone."""
        if known.depends_on_data and waits_for_data(known, args):
            return self._depending(func, args, kwargs)
        if kwargs.get("pin_memory"):
            kwargs = {**kwargs, "pin_memory": False}
        options = kwargs
        if kwargs.get("generator") is not None:
            options = {**kwargs, "generator": None}
        shaped, call = self._shapes.of(func, types, args, options)
        shaped = compute(known, func, args, kwargs, shaped, self.has_data)
        if known.indexes and waits_for_data(known, args):
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
        self, known: Operation, call: Known | None, func: Any, args: Any, kwargs: Any, result: Any
    ) -> None:
        """Let the rank pay for an operation, and note what it has allocated."""
        tensor = result if type(result) is FakeTensor else first_tensor((result, args))
        if known.is_view or tensor is None:
            return
        device = tensor.fake_device if type(tensor) is FakeTensor else tensor.device
        if device.type == "cuda":
            for new in fake_tensors(result if isinstance(result, (list, tuple)) else (result,)):
                self.bear(new, func)
            if not known.free:
                self._launch(known, func, args, kwargs, result, call)
        elif not tensor.is_meta:
            self._charge_host(func, args, kwargs, result)

    def _launch(
        self, known: Operation, func: Any, args: Any, kwargs: Any, result: Any, call: Known | None
    ) -> None:
        """Launch the kernels of an operation on the current stream."""
        part = current_pass()
        if self._fusing.takes(func, args, kwargs, result, part):
            return
        computes = known.formula is not None
        pads = computes and self._fusing.pads
        terms = computes and allows_tf32(known.convolves), pads
        if call is not None and call.launches is not None and call.terms == terms:
            launches = call.launches
        else:
            launches = self.costs.of(func, args, kwargs, result, pads)
            if call is not None:
                call.launches, call.terms = launches, terms
        if launches:
            self._issue(launches, part)

    def transfer(self, nbytes: int, direction: str, waits: bool) -> None:
        """Charge a transfer between host and device, in words such as ``HtoD``; *waits*: the host does."""
        self.gpu.launch(f"Memcpy {direction}", self.costs.copy_ps(nbytes), kind="copy")
        if waits:
            self.gpu.host_wait(self.gpu.current, f"copy {direction}")

    def bear(self, tensor: Tensor, func: Any) -> None:
        """Note a new tensor of the device, which *func* has made."""
        self.gpu.in_use = True
        for listener in self.born:
            listener(tensor, func)

    def shaped(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Return the result of an operation, without data."""
        return self._shapes.of(func, types, args, kwargs)[0]

    def _depending(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Carry out an operation whose results are as large as the data says; the host waits for it."""
        tensor = first_tensor(args)
        assert tensor is not None
        try:
            values, options = with_values(args), with_values(kwargs)
            self.note_read()
            result = self._wrapped(func(*values, **options), tensor.device)
        except UnknownValueError:
            places = self._places(args[1], tensor.device) if func is _aten.index.Tensor else None
            if places is not None:
                result = self.shaped(func, (), (tensor, places), kwargs)
            elif func is _aten.index.Tensor and self._selects_all:
                result = self._all_selected(tensor, *args[1])
            else:
                named = f"{func.overloadpacket.__name__} of {data_dependent.spelled(tensor)}"
                data_dependent.refuse(f"{named}, whose result")
        if tensor.device.type == "cuda":
            self._launch(operation_of(func), func, args, kwargs, result, None)
            self.gpu.host_wait(self.gpu.current, func.overloadpacket.__name__)
        return result

    def note_read(self) -> None:
        """Note that the host reads what decides sizes, and is known though there are no data."""
        if self.router is not None and self.router.decides_sizes:
            note_routed_size()

    def _places(self, indices: Any, device: torch.device) -> list[Any] | None:
        """Return *indices* with the places at which masks are true in their stead; None: one is not known."""
        places: list[Any] = []
        for index in indices:
            if not is_mask(index):
                places.append(index)
            elif (mask := value_of(index)) is None:
                return None
            else:
                self.note_read()
                places += self._wrapped(mask.nonzero().unbind(1), device)
        return places

    def _all_selected(self, tensor: Tensor, mask: Tensor) -> FakeTensor:
        """Return what ``tensor[mask]`` is where the mask is true everywhere."""
        shape = (mask.numel(), *tensor.shape[mask.dim() :])
        return FakeTensor(self.fake, torch.empty(shape, dtype=tensor.dtype, device=_META), tensor.device)

    def _wrapped(self, computed: Any, device: torch.device) -> Any:
        """Return results as virtual tensors of *device*, with their values."""
        if isinstance(computed, Tensor):
            tensor = self._likeness.of(computed, device)
            set_value(tensor, computed)
            return tensor
        if isinstance(computed, (list, tuple)):
            return type(computed)(self._wrapped(value, device) for value in computed)
        return computed


def _are_counters(value: Any) -> bool:
    """Return whether *value* has tensors, and all of them are of one element without a dimension."""
    return {tensor.dim() for tensor in tensors_in(value)} == {0}


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
