"""Execution of operations on virtual CUDA tensors of which the processor time of kernels counts."""

from __future__ import annotations

import time
from typing import Any

from collectives.virtual.computation.measured import do_not_count
from collectives.virtual.gpu.computing import value_on_cpu
from collectives.virtual.gpu.instant_execution import InstantExecution
from collectives.virtual.gpu.knowledge import Knowledge


class MeasuredExecution(InstantExecution):
    """Carries out operations of a rank whose computation is measured.

    What it takes to have tensors on a device that is not there is no computation of the script.
    """

    def __init__(self) -> None:
        super().__init__(self._timed)
        self._kernels_ns = 0

    def on_device(self, known: Knowledge, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Carry out an operation with virtual tensors among its arguments or results."""
        began_ns, kernels_ns = time.thread_time_ns(), self._kernels_ns
        try:
            return super().on_device(known, func, types, args, kwargs)
        finally:
            do_not_count(time.thread_time_ns() - began_ns - (self._kernels_ns - kernels_ns))

    def _timed(self, known: Knowledge, func: Any, values: Any, options: Any) -> Any:
        began_ns = time.thread_time_ns()
        try:
            return value_on_cpu(known, func, values, options)
        finally:
            self._kernels_ns += time.thread_time_ns() - began_ns
