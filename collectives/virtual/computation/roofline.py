"""Roofline model of computation: every operation of torch by its arithmetic and its bytes on a device.

A dispatch mode on the rank's thread sees what reaches the kernels, in forward and backward passes, in
optimizers and in hooks, and charges each operation when it is called: the longer of its arithmetic and its
bytes, and the launch (`sim.hardware.Device`, `collectives.virtual.computation.operations`).

Where the device's file has rates of measured kernels, an operation whose kind is among them
(`collectives.virtual.computation.kernels`) takes what its table says for its shape.  Which operations have no
table there, and which lie outside of the measured shapes, the run says in its notices.

On a GPU (`sim.hardware.Device.kind`) an operation is what CUDA launches for it, on the current stream, while
the host runs ahead (`collectives.virtual.gpu.charged_execution`); the rest of this is of other devices.

What is assumed: one operation at a time, in the order of the program, as on one stream whose launches the
host waits for.  What collectives do within belongs to the network
(`collectives.communicators.dispatch_modes`); they run beside the computation, and waiting for one holds up
the rank.  Nothing is fused, and no cache helps: an operation's operands come from memory and its results go
there, unless measured rates say otherwise.  The types are those of the tensors.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from typing import Any

import torch
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from collectives.errors import NotSupportedError
from collectives.virtual.computation.boundaries import cross
from collectives.virtual.computation.kernels import axes_of, measured_ps
from collectives.virtual.computation.launches import Launches
from collectives.virtual.computation.operations import Operation, first_tensor, operation_of
from collectives.virtual.computation.passes import current_pass
from collectives.virtual.computation.totals import Totals
from collectives.virtual.diagnosis.places import frames_from
from collectives.virtual.notices import Notices
from sim.cluster import RankThread, Surroundings
from sim.files.device_file import load_device
from sim.hardware import Device

_DENSE = torch._C.DispatchKey.CompositeExplicitAutograd
_PLAIN: Any = torch.Tensor.__torch_dispatch__
"""That of tensors whose operations are their own, such as parameters."""
_FIND_SHAPES = tuple(
    os.path.join(torch.__path__[0], *path)
    for path in (
        ("distributed", "tensor"),
        ("distributed", "pipelining"),
        ("_functorch",),
        ("_dynamo", "symbolic_convert.py"),
    )
)
_WITHOUT_DATA = (
    "operations on tensors without data (on meta, or torch's FakeTensor) take no time; those of a GPU do "
    "with --fake --compute h100"
)
_UNMODELLED = (
    "operations whose cost has no formula, charged by the bytes that they move, which do not bound it "
    "(--strict refuses them), calls of a rank"
)


class Roofline:
    """A roofline of one device, on every rank: a `collectives.virtual.computation.ComputeModel`.

    Args:
        device: a name, a file or a device.
        tf32: matrix products of float32 are carried out in tfloat32, as after
            ``torch.set_float32_matmul_precision("high")``; convolutions always are where the device can.

    Raises:
        DeviceFileError: there is no such device.
        NotSupportedError: tfloat32 is wanted of a device that has none, or rates are of other shapes than
            operations have.
    """

    repeats = True

    def __init__(self, device: str | PathLike[str] | Device, tf32: bool = False) -> None:
        self.device = device if isinstance(device, Device) else load_device(device)
        if tf32 and "tfloat32" not in self.device.rates:
            raise NotSupportedError(f"the device {self.device.name} has no tfloat32; leave tf32 out")
        for table in self.device.kernels.values():
            if set(table.axes) != set(axes_of(table.operation)):
                raise NotSupportedError(
                    f"the device {self.device.name} has kernels of {table.operation} by "
                    f"{', '.join(table.axes)}; expected {', '.join(axes_of(table.operation))}"
                )
        self.name = f"roofline of {self.device.name}{' with tf32' if tf32 else ''}"
        self.tf32 = tf32
        self.totals: dict[int, Totals] = {}

    def launches(self, cluster: Surroundings) -> Launches:
        """Return what operations launch in the run on *cluster*, which all its ranks share."""
        if self not in cluster.shared:
            cluster.shared[self] = Launches(self.device, self.tf32, Notices.of(cluster).add)
        launches: Launches = cluster.shared[self]
        return launches

    @contextmanager
    def on_rank(self, rank_thread: RankThread) -> Iterator[None]:
        """Charge what is computed on this thread."""
        mode = _Charging(rank_thread, self)
        self.totals[rank_thread.rank] = mode.totals
        try:
            with mode:
                yield
        finally:
            mode.show()

    def end_iteration(self, rank_thread: RankThread, finished: int) -> None:
        """Note that a rank has finished so many iterations."""
        if rank_thread.rank in self.totals:
            self.totals[rank_thread.rank].end_iteration(finished)

    def note_unmodelled(self, notices: Notices) -> None:
        """Say how often a rank has called each operation that is not modelled, at most."""
        most: Counter[str] = Counter()
        for totals in self.totals.values():
            most |= totals.unmodelled
        for name, times in sorted(most.items()):
            notices.add(_UNMODELLED, f"{name} {times}×")

    def summary(self) -> Mapping[str, Any]:
        """Return what a rank has computed at most, for reports."""
        most = max(self.totals.values(), key=lambda totals: (totals.flops, totals.nbytes), default=Totals())
        return {"operations": most.operations, "flops": most.flops, "bytes": most.nbytes}


class _Charging(TorchDispatchMode):
    """Charges a rank for the operations on its thread, and shows passes in the trace, one span for each."""

    supports_higher_order_operators = True

    def __init__(self, rank_thread: RankThread, model: Roofline) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.rank_thread = rank_thread
        self.device = model.device
        self.tf32 = model.tf32
        self.totals = Totals()
        self._name = ""
        self._began_ps = self._ended_ps = 0
        self._flops: dict[Any, int] = {}
        self._say = Notices.of(rank_thread.cluster).add
        self._launches = model.launches(rank_thread.cluster)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, HigherOrderOperator):
            with self:  # what it consists of comes here again
                return func.py_kernels[_DENSE](*args, **kwargs)
        if func.namespace == "prim":  # what C++ asks of a tensor, such as its device
            return func(*args, **kwargs)
        operation = operation_of(func)
        if types and not operation.communicates:
            if any(issubclass(kind, FakeTensor) for kind in types):
                self._leave_out(func, operation)
                return func(*args, **kwargs)
            if any(kind.__torch_dispatch__ is not _PLAIN for kind in types):
                cross()  # a subclass first says of what operations on plain tensors it consists
                return NotImplemented
        if operation.decomposes and not operation.communicates:
            with self:
                result = func.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        result = func(*args, **kwargs)
        if not (operation.free or operation.communicates):
            self._charge(func, operation, args, kwargs, result)
        return result

    def _charge(
        self, func: Any, operation: Operation, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any
    ) -> None:
        tensor = first_tensor((*args, result))
        if tensor is None or tensor.is_meta:
            self._leave_out(func, operation)
            return
        flops = 0 if operation.formula is None else self._count(func, operation.formula, args, kwargs, result)
        nbytes = operation.nbytes(args, kwargs, result)
        if not (flops or nbytes):
            return

        dtype = self._launches.rate_name(tensor.dtype, self.tf32 or operation.convolves)
        unmodelled = ""
        try:
            duration_ps = measured_ps(
                self.device, func, args, kwargs, result, dtype, flops, nbytes, self._say
            )
            if duration_ps is None:
                unmodelled = "" if operation.bounded else self._launches.unmodelled(str(func))
                duration_ps = self.device.duration_ps(flops, nbytes, dtype)
        except KeyError:
            raise self._launches.no_rate(dtype, func) from None

        self.totals.add(flops, nbytes, unmodelled=unmodelled)
        began_ps = self.rank_thread.now_ps()
        self.rank_thread.compute(duration_ps)
        if self.rank_thread.cluster.trace is not None:
            self._extend(current_pass(), began_ps, self.rank_thread.now_ps())

    def _leave_out(self, func: Any, operation: Operation) -> None:
        """Say of *func* on tensors without data, if it computes much, that it takes no time."""
        if operation.formula is not None and not _looks_for_shapes():
            self._say(_WITHOUT_DATA, func.overloadpacket.__name__)

    def _count(
        self,
        func: Any,
        formula: Callable[..., int],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        result: Any,
    ) -> int:
        """Return the operation's arithmetic, which depends on shapes and sizes only."""
        key = (func, *map(_size, args))
        if key not in self._flops:
            self._flops[key] = int(formula(*args, **kwargs, out_val=result))
        return self._flops[key]

    def _extend(self, name: str, began_ps: int, ended_ps: int) -> None:
        """Add to the span of the pass, or begin another one."""
        if name != self._name or began_ps != self._ended_ps:
            self.show()
            self._name, self._began_ps = name, began_ps
        self._ended_ps = ended_ps

    def show(self) -> None:
        """Put the latest span into the trace."""
        trace = self.rank_thread.cluster.trace
        if trace is not None and self._ended_ps > self._began_ps:
            trace.span(self.rank_thread.rank, "compute", self._name, self._began_ps, self._ended_ps)


def _looks_for_shapes() -> bool:
    """Return whether it is torch that computes without data, to know shapes: DTensor, stages, compilers."""
    return any(one.f_code.co_filename.startswith(_FIND_SHAPES) for one in frames_from(sys._getframe(1)))


def _size(value: Any) -> Any:
    """Return what of an argument the arithmetic depends on."""
    if isinstance(value, torch.Tensor):
        return value.shape
    return tuple(map(_size, value)) if isinstance(value, (list, tuple)) else value
