"""Execution of operations of a rank whose virtual CUDA tensors have data, and of whose device is no model.

Nothing is charged, so nobody asks what a kernel of CUDA would do: an operation is carried out on the values
of its arguments, tensors of the CPU, and its results are virtual tensors as large as what comes out.  That
takes a fraction of the time that it takes to find shapes without data
(`collectives.virtual.gpu.charged_execution`), which is left to operations that change what a tensor says of
itself, and to those that torch might refuse.  Where computation is measured, the processor time of kernels
counts, and no other.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from collectives.virtual.computation.model import do_not_count
from collectives.virtual.computation.operations import Operation
from collectives.virtual.gpu.accelerator import InstantGpu
from collectives.virtual.gpu.computing import compute, value_on_cpu
from collectives.virtual.gpu.shapes import Likeness
from collectives.virtual.gpu.values import fake_tensors, is_plain, set_value, value_of, with_values

_aten = torch.ops.aten
_MIXES = frozenset((_aten.copy_.default, _aten._to_copy.default))
"""Operations on tensors of both devices."""


class InstantExecution:
    """Carries out operations of a rank on virtual CUDA tensors with data, at no time."""

    stands_in = False

    def __init__(self, gpu: InstantGpu, value: Callable[..., Any] = value_on_cpu) -> None:
        self._gpu = gpu
        self._value = value
        self.fake = FakeTensorMode(allow_non_fake_inputs=True)
        self._likeness = Likeness(self.fake)

    def on_host(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Carry out an operation on plain tensors of the CPU, or of none."""
        return func(*args, **kwargs)

    def note_composed(self, func: Any) -> None:
        """Do nothing: nothing is charged."""

    def higher_order(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Return NotImplemented: it is no matter how many kernels it takes."""
        return NotImplemented

    def on_device(self, known: Operation, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Carry out an operation with virtual tensors among its arguments or results."""
        if func is _aten._pin_memory.default:
            return args[0]
        if func is _aten.is_pinned.default:
            return False
        tensors = fake_tensors((*args, *kwargs.values()) if kwargs else args)
        if known.mutates_kinds or known.resizes or (func not in _MIXES and _has_plain(args)):
            return self._by_shape(known, func, types, args, kwargs)

        options = with_values(kwargs) if kwargs else kwargs
        if options.get("pin_memory"):
            options["pin_memory"] = False
        computed = self._value(known, func, with_values(args), options)
        changed = [*tensors, *filter(is_plain, args)] if known.mutates else []
        return self._result(known, computed, kwargs.get("device") or tensors[0].fake_device, tensors, changed)

    def _result(
        self,
        known: Operation,
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
            self._gpu.in_use = True
            base = tensors[0] if known.is_view else None
            made = self._likeness.of(computed, device, base)
            set_value(made, computed, base)
            return made
        if isinstance(computed, (list, tuple)):
            return type(computed)([self._result(known, one, device, tensors, changed) for one in computed])
        return computed

    def _by_shape(self, known: Operation, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Carry out an operation of which FakeTensorMode says whether it is allowed, and what comes out."""
        options = {name: value for name, value in kwargs.items() if name not in ("generator", "pin_memory")}
        shaped = self.fake.dispatch(func, types, self._likeness.faked(args), options)
        return compute(known, func, args, kwargs, shaped, has_data=True, by=self._value)


def _has_plain(args: Any) -> bool:
    """Return whether there are tensors of the CPU among arguments, other than numbers."""
    return any(
        (is_plain(value) and value.dim() > 0) or (type(value) in (list, tuple) and _has_plain(value))
        for value in args
    )


class MeasuredExecution(InstantExecution):
    """Carries out operations of a rank whose computation is measured.

    What it takes to have tensors on a device that is not there is no computation of the script.
    """

    def __init__(self, gpu: InstantGpu) -> None:
        super().__init__(gpu, self._timed)
        self._kernels_ns = 0

    def on_device(self, known: Operation, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Carry out an operation with virtual tensors among its arguments or results."""
        began_ns, kernels_ns = time.thread_time_ns(), self._kernels_ns
        try:
            return super().on_device(known, func, types, args, kwargs)
        finally:
            do_not_count(time.thread_time_ns() - began_ns - (self._kernels_ns - kernels_ns))

    def _timed(self, known: Operation, func: Any, values: Any, options: Any) -> Any:
        began_ns = time.thread_time_ns()
        try:
            return value_on_cpu(known, func, values, options)
        finally:
            self._kernels_ns += time.thread_time_ns() - began_ns
