"""Measuring of kernels: how long each takes on this machine, called as a step of a training calls it.

Each call has operands of its own out of a large pool, and results are kept until the end of a round, as a
forward pass keeps its activations.  A round is repeated in several passes over all kernels, so that what
disturbs the machine for a moment does not hit all rounds of one kernel; the fastest counts, as others only
delay.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch

from collectives.virtual.computation.kernels import Kernel, kernel_of
from collectives.virtual.computation.operations import Operation
from testbed.calibration.device.cases import Case, cases
from testbed.calibration.device.memory import Operands
from testbed.output.table import Advance

PASSES = 3
ROUND_SECONDS = 0.003
MAX_CALLS = 100
KEPT_BYTES = 256 * 2**20
LONG_SECONDS = 0.02
"""A kernel that takes as long as this needs no warm-up."""
VERY_LONG_SECONDS = 0.05
"""One that takes as long as this is left out of the last pass."""

TORCH_TYPES: Mapping[str, torch.dtype] = {
    "float64": torch.float64,
    "float32": torch.float32,
    "tfloat32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
"""Types of device files, and of the tensors that compute in them."""


@dataclass(frozen=True)
class MeasuredKernel:
    """A kernel at one size, and how long it took.

    Attributes:
        operation: the kind under which device files list it.
        dtype: in which it computed, as device files call it.
        shape: the sizes that its rate depends on.
        flops: its arithmetic, 0 where memory bounds it.
        nbytes: that it reads and writes.
        seconds: of each round, for one call.
    """

    operation: str
    dtype: str
    shape: Mapping[str, int]
    flops: int
    nbytes: int
    seconds: tuple[float, ...]

    @property
    def fastest(self) -> float:
        """Seconds of a call in the fastest round."""
        return min(self.seconds)

    @property
    def spread(self) -> float:
        """How far the rounds lie apart, as a part of the fastest."""
        return max(self.seconds) / min(self.seconds) - 1


@dataclass
class _Timed:
    kernel: Kernel
    flops: int
    nbytes: int
    first: float
    rounds: list[float] = field(default_factory=list)

    def measured(self, dtype: str) -> MeasuredKernel:
        kind, shape = self.kernel.operations[0], self.kernel.shape
        return MeasuredKernel(kind, dtype, shape, self.flops, self.nbytes, tuple(self.rounds))


def measured_kernels(
    device: torch.device,
    dtypes: Sequence[str],
    advance: Advance,
    chosen: Callable[[Case], bool] = lambda case: True,
) -> tuple[list[MeasuredKernel], list[str]]:
    """Return how long kernels take on *device*, and which it could not carry out.

    Args:
        device: the processor, or an accelerator.
        dtypes: the types, as device files call them.
        advance: is told after each kernel.
        chosen: which of the kernels are measured.
    """
    measured: list[MeasuredKernel] = []
    refused: dict[str, None] = {}
    for dtype in dtypes:
        some = Operands(TORCH_TYPES[dtype], device)
        wanted = [case for case in _cases_of(dtype, device) if chosen(case)]
        timed: dict[int, _Timed] = {}
        with _in_type(dtype), torch.no_grad():
            for number in range(PASSES):
                for position, case in enumerate(wanted):
                    name = f"{case.name} in {dtype}"
                    advance(f"{name}, pass {number + 1} of {PASSES}")
                    if name not in refused and not _time(case, some, timed, position, number):
                        refused[name] = None
        measured += [
            one.measured(dtype)
            for position, one in timed.items()
            if f"{wanted[position].name} in {dtype}" not in refused
        ]
    return measured, list(refused)


def number_of_calls(device: torch.device, dtypes: Sequence[str]) -> int:
    """Return how often `measured_kernels` tells that it has advanced."""
    return PASSES * sum(1 for dtype in dtypes for _ in _cases_of(dtype, device))


def _cases_of(dtype: str, device: torch.device) -> Iterator[Case]:
    for case in cases(accelerator=device.type != "cpu"):
        if dtype != "tfloat32" or "product" in case.name or "convolution" in case.name:
            yield case


def _time(case: Case, some: Operands, timed: dict[int, _Timed], position: int, number: int) -> bool:
    """Time a round of *case*, in the first pass also what it is; return False if it cannot be carried out."""
    try:
        func, args, named = case.call(some)
        if number == 0:
            timed[position] = _first(func, args, named, some.device)
        one = timed[position]
        if number == 0 and one.first > LONG_SECONDS:
            one.rounds.append(one.first)
        elif number < PASSES - 1 or one.first < VERY_LONG_SECONDS:
            one.rounds.append(_round(case, some, one))
    except (RuntimeError, NotImplementedError, TypeError):
        timed.pop(position, None)
        return False
    return True


def _first(func: Any, args: tuple[Any, ...], named: dict[str, Any], device: torch.device) -> _Timed:
    """Call once, or twice where the first call may only have warmed up, to learn what it is and takes."""
    seconds = 0.0
    while seconds < LONG_SECONDS:
        again = seconds > 0
        _wait(device)
        began = time.perf_counter()
        result = func(*args, **named)
        _wait(device)
        seconds = time.perf_counter() - began
        if again:
            break

    operation = Operation.of(func)
    nbytes = operation.nbytes(args, named, result)
    flops = 0 if operation.formula is None else int(operation.formula(*args, **named, out_val=result))
    return _Timed(kernel_of(func, args, named, result, nbytes), flops, nbytes, seconds)


def _round(case: Case, some: Operands, one: _Timed) -> float:
    """Return the seconds of a call, in a round of many."""
    count = min(MAX_CALLS, max(1, int(ROUND_SECONDS / one.first)), max(1, KEPT_BYTES // max(1, one.nbytes)))
    calls = [case.call(some) for _ in range(count)]
    _wait(some.device)

    began = time.perf_counter()
    kept = [func(*args, **named) for func, args, named in calls]
    _wait(some.device)
    del kept
    return (time.perf_counter() - began) / count


def _wait(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize(device)


@contextmanager
def with_threads(count: int) -> Iterator[None]:
    """Let kernels use so many threads of the processor."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _in_type(dtype: str) -> Iterator[None]:
    """Let products and convolutions of float32 compute in *dtype*."""
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high" if dtype == "tfloat32" else "highest")
    torch.backends.cudnn.allow_tf32 = dtype == "tfloat32"
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        torch.backends.cudnn.allow_tf32 = before[1]
