"""Launches: the kernels that CUDA launches for each of torch's operations, and how long each takes.

Every operation that is no view and no allocation launches kernels.  Products, convolutions and attention
are bound by their arithmetic, as `collectives.virtual.computation.cuda` says, or by their operands' way
through memory, whichever is longer; all other kernels by the bytes that they read and write, at the rate that
the device's memory reaches.  Each kernel takes a fixed time besides.  Where a device's file has rates of
measured kernels, those stand in the place of all this (`collectives.virtual.computation.kernels`).

What is assumed: no cache helps from one kernel to the next, and an operand is read in full, even one that is
expanded.  Operations run as eager torch issues them; casts of autocast are operations of their own.  Norms
and pictures are read as often as their kernels read them: `cuda.bytes_moved` lists what the schema does not
tell. Products of float32 are carried out in tfloat32 where the script allows it, by any of torch's switches,
when they are launched, and the device can; convolutions unless the script forbids it.  Switches for sums in
reduced precision change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from collectives.errors import NotSupportedError
from collectives.virtual.computation.cuda import bytes_moved
from collectives.virtual.computation.cuda.arithmetic import Arithmetic
from collectives.virtual.computation.cuda.attention import AttentionShape
from collectives.virtual.computation.kernels import measured_ps
from collectives.virtual.computation.operations import Operation, named, operation_of, tensors_in
from collectives.virtual.computation.stated import StatedCost, stated_cost
from collectives.virtual.diagnosis.places import current_place
from sim.hardware import Clocks, Device
from sim.units import SECOND


class KernelLaunch(NamedTuple):
    """One kernel.

    Attributes:
        name: of torch's operation, without its overload.
        duration_ps: from its begin to its end on a device that does nothing else.
        flops: of arithmetic, a multiplication and an addition each one, as torch counts them.
        nbytes: read and written.
        dtype: in which the device computes, by the names of its rates; empty where there are no flops.
        unmodelled: the full name of an operation whose cost has no formula and whose bytes do not bound it.
    """

    name: str
    duration_ps: int
    flops: int
    nbytes: int
    dtype: str = ""
    unmodelled: str = ""


HOST_BANDWIDTH = 10 * 10**9
"""Bytes per second that one core of a host moves: an assumption."""

_SHORT = ("float8", "float4")
"""Types that stand for all of their formats."""
_TF32 = ("cuda", "matmul"), ("cuda", "conv")
Say = Callable[[str, str], None]


class Launches:
    """What operations launch on one device, found once for each shape.

    Args:
        device: on which kernels run.
        tf32: products of float32 are carried out in tfloat32 whatever the script says.
        say: is told, as a kind of remark and what it is about, which kernels a device's measured rates do
            not cover.
        clocks: at which products run: those of a training step.

    Attributes:
        strict: an operation that is not modelled is an error.
    """

    def __init__(
        self, device: Device, tf32: bool = False, say: Say | None = None, clocks: Clocks = "training"
    ) -> None:
        self.device = device
        self.tf32 = tf32
        self._say = say or (lambda kind, about: None)
        self._arithmetic = Arithmetic(device, clocks)
        self._known: dict[Any, Sequence[KernelLaunch]] = {}
        self.strict = False

    def of(
        self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any, padded: bool = False
    ) -> Sequence[KernelLaunch]:
        """Return the kernels that a call of the overload *func* launches, in order; none if it is free.

        Depends on shapes, strides, types and whole numbers only, so tensors need have no values.  Products
        whose rows are *padded*, as inductor's are, lose nothing where rows do not begin at whole loads.

        Raises:
            NotSupportedError: the device has no rate for the type in which it computes.
        """
        operation = operation_of(func)
        if operation.free or operation.communicates:
            return ()
        computes = operation.formula is not None
        tf32 = computes and (self.tf32 or allows_tf32(operation.convolves))
        of = self._strided_key if computes or self.device.kernels else self._key
        sizes = (of(result),) if operation.depends_on_data else ()
        key = (func, tf32, padded, *sizes, *map(of, args), *((name, of(kwargs[name])) for name in kwargs))
        launches = self._known.get(key)
        if launches is None:
            launches = self._known[key] = self._found(func, operation, args, kwargs, result, tf32, padded)
        return launches

    def block_masked(
        self, name: str, query: torch.Tensor, shape: AttentionShape, flops: int, nbytes: int
    ) -> KernelLaunch:
        """Return the kernel of attention with a mask of blocks, forward or backward as its *name* says.

        Raises:
            NotSupportedError: the device has no rate for the type in which it computes.
        """
        dtype = self.rate_name(query.dtype, self.tf32 or allows_tf32(False))
        try:
            duration_ps = self._arithmetic.block_masked_ps(shape, dtype, "backward" in name, nbytes)
        except KeyError:
            raise self.no_rate(dtype, name) from None
        return KernelLaunch(name, duration_ps, flops, nbytes, dtype)

    def no_rate(self, dtype: str, name: object) -> NotSupportedError:
        """Return the error of an operation *name* that computes in a *dtype* of which there is no rate."""
        return NotSupportedError(
            f"the device {self.device.name} has no rate for {dtype}, in which {name} computes; "
            "give it one in a device file, or compute in another type"
        )

    def unmodelled(self, name: str) -> str:
        """Return *name*, of an operation whose cost has no formula and whose bytes do not bound it.

        Raises:
            NotSupportedError: the run is strict.
        """
        if self.strict:
            place = current_place()
            raise NotSupportedError(
                f"{name}{f', at {place}' if place else ''}: its cost has no formula, and the bytes that it "
                "moves do not bound it; use another operation, or leave --strict out"
            )
        return name

    def host_ps(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> int:
        """Return how long the host takes for an operation on its own tensors, one core of it.

        Views and allocations are free, as on the device; arithmetic is not counted.
        """
        operation = operation_of(func)
        if operation.free or operation.communicates:
            return 0
        nbytes = operation.nbytes(args, kwargs, result)
        return self.device.host_overhead_ps + -(-nbytes * SECOND // HOST_BANDWIDTH)

    def copy_ps(self, nbytes: int) -> int:
        """Return how long a copy between the host's memory and the device's takes.

        Raises:
            NotSupportedError: the device's file does not say how fast copies are.
        """
        if self.device.copy_bandwidth is None:
            raise NotSupportedError(
                f"the device {self.device.name} does not say how fast the host's memory is copied; "
                'give its file host_to_device = "25GB/s"'
            )
        return -(-nbytes * SECOND // self.device.copy_bandwidth) + self.device.launch_ps

    def _key(self, value: Any) -> Any:
        """Return what of an argument the kernels depend on."""
        if isinstance(value, torch.Tensor):
            return value.shape, value.dtype
        if isinstance(value, (list, tuple)):
            return tuple(map(self._key, value))
        return float if isinstance(value, float) else value

    def _strided_key(self, value: Any) -> Any:
        """Return the same of an argument of kernels that depend on strides, too."""
        if isinstance(value, torch.Tensor):
            return value.shape, value.dtype, value.stride()
        return self._key(value)

    def _found(
        self,
        func: Any,
        operation: Operation,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        result: Any,
        tf32: bool,
        padded: bool,
    ) -> Sequence[KernelLaunch]:
        name: str = func.overloadpacket.__name__
        tensors = tuple(tensors_in((args, tuple(kwargs.values()), result)))
        if not tensors:
            return ()
        nbytes = bytes_moved.nbytes(name, operation, named(func, args, kwargs), args, kwargs, result)
        if name.startswith(("_foreach_", "_fused_adam", "_fused_sgd", "_fused_adagrad", "_amp_foreach_")):
            return self._of_many(name, args, result, nbytes)

        stated = stated_cost(func, args, kwargs, result)
        if stated is not None:
            return (self._stated(func, stated, nbytes, tensors[0].dtype, tf32),)
        flops = operation.formula(*args, **kwargs, out_val=result) if operation.formula else 0
        if not (flops or nbytes):
            return ()
        dtype = self.rate_name(tensors[0].dtype, tf32)
        if name == "_scaled_mm" and dtype == "float8" and _scales_blocks(named(func, args, kwargs)):
            dtype = "float8_block"
        duration_ps = measured_ps(
            self.device, func, args, kwargs, result, dtype, int(flops), nbytes, self._say
        )
        unmodelled = ""
        if duration_ps is None:
            values = named(func, args, kwargs)
            unmodelled = "" if operation.bounded else self.unmodelled(str(func))
            try:
                duration_ps = self._arithmetic.duration_ps(
                    name, values, result, dtype, int(flops), nbytes, padded
                )
            except KeyError:
                raise self.no_rate(dtype, func) from None
        return (KernelLaunch(name, duration_ps, int(flops), nbytes, dtype if flops else "", unmodelled),)

    def _stated(
        self, func: Any, stated: StatedCost, nbytes: int, dtype: torch.dtype, tf32: bool
    ) -> KernelLaunch:
        """Return the kernel of an operator whose cost the script has stated."""
        rate, moved = self.rate_name(dtype, tf32), nbytes if stated.nbytes is None else stated.nbytes
        try:
            duration_ps = self.device.duration_ps(stated.flops, moved, rate)
        except KeyError:
            raise self.no_rate(rate, func) from None
        if stated.seconds is not None:
            duration_ps = round(stated.seconds * SECOND)
        name: str = func.overloadpacket.__name__
        return KernelLaunch(name, duration_ps, stated.flops, moved, rate if stated.flops else "")

    def _of_many(self, name: str, args: Sequence[Any], result: Any, nbytes: int) -> Sequence[KernelLaunch]:
        """Return the kernels of an operation on lists of tensors, each with its share of the bytes."""
        values = (*args, result) if isinstance(result, (list, tuple)) else args
        lists = [
            value
            for value in values
            if isinstance(value, (list, tuple)) and value and isinstance(value[0], torch.Tensor)
        ]
        if not lists:
            return ()
        sizes = [tensor.numel() for tensor in lists[0]]
        alike = [own for own in lists if len(own) == len(sizes) and own[-1].shape == lists[0][-1].shape]
        if name != "_foreach_copy_" and len({tensor.dtype for own in alike for tensor in own}) > 1:
            kernels = [size for size in sizes if size]  # torch then takes the tensors one by one
        else:
            kernels = bytes_moved.packed(sizes, len(alike))
        total = max(1, sum(sizes))
        shares = [nbytes * elements // total for elements in kernels]
        rate, launch_ps = self.device.memory_bandwidth, self.device.launch_ps
        return [KernelLaunch(name, -(-share * SECOND // rate) + launch_ps, 0, share) for share in shares]

    def rate_name(self, dtype: torch.dtype, tf32: bool) -> str:
        """Return the type in which the device computes on tensors of *dtype*."""
        name = str(dtype).removeprefix("torch.")
        if name == "float32" and tf32 and "tfloat32" in self.device.rates:
            return "tfloat32"
        return next((own for own in _SHORT if name.startswith(own)), name)


def _scales_blocks(values: Mapping[str, Any]) -> bool:
    """Return whether operands of a product have a scale for each block, not for each row or tensor."""
    return any(min(values[name].shape, default=1) > 1 for name in ("scale_a", "scale_b"))


def allows_tf32(convolves: bool) -> bool:
    """Return whether the script lets float32 be carried out in tfloat32, as torch's switches stand now."""
    return bool(torch._C._get_fp32_precision_getter(*_TF32[convolves]) == "tf32")
