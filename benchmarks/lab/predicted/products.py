"""Matrix products of tables: C = A (m × k) · Bᵀ (n × k), with what it takes to quantise A.

The product is asked of `Launches` as torch would call it, `aten.mm` or `aten._scaled_mm`, and so is the
element by element pass over A that makes float8 or float4 of bfloat16; scales are found in that pass.
TensorRT-LLM finds its one scale of a float8 tensor before: maxima of rows, their maximum, and the scale.
vLLM's products by blocks were called by the host each time, which takes as long where the kernels are short.
"""

from __future__ import annotations

import torch

from benchmarks.lab.predicted.devices import device_name, device_of, launches_on
from benchmarks.lab.predicted.rows import Row
from sim.hardware import Clocks
from sim.units import SECOND

NEEDED = ("gpu", "dtype", "m", "n", "k")
SHAPE = ("m", "n", "k")
_aten = torch.ops.aten
_BLOCK, _GROUP = 128, 16
"""Elements that share a scale: of a row of float8 by blocks, and of float4."""

_HOST_US = {"h100": 84.1, "h200": 86.5, "b200": 228, "b300": 228, "gb200": 418, "gb300": 418}
"""What vLLM's host takes to call a product by blocks: medians of rows that calibrate and whose kernels take
less than 60 microseconds; B300 and GB300 have those of B200 and GB200, an assumption."""


def is_of_training(row: Row) -> bool:
    """Return whether a product has a shape of training: many tokens, wide layers."""
    m, n, k = (int(row[name]) for name in SHAPE)
    return m >= 1024 and 1000 <= n <= 33_000 and 1000 <= k <= 33_000


def finds_one_scale(row: Row) -> bool:
    """Return whether a row scales its whole tensor alike, by a maximum that it finds each time."""
    return row["dtype"] == "fp8" and row.get("framework") == "trtllm"


def product_us(row: Row, clocks: Clocks) -> float:
    """Return how long the product of a row takes, in microseconds.

    Raises:
        NotSupportedError: the device has no such type.
        KeyError: the type is not known.
    """
    m, n, k = (int(row[name]) for name in SHAPE)
    launches = launches_on(row["gpu"], clocks)
    whole_ps = 0
    for func, args, kwargs, result in _calls(m, n, k, row["dtype"], finds_one_scale(row)):
        whole_ps += sum(one.duration_ps for one in launches.of(func, args, kwargs, result))
    is_called_anew = row["dtype"] == "fp8_block" and row.get("framework") == "vllm"
    return max(whole_ps / SECOND * 1e6, _HOST_US.get(device_name(row["gpu"]), 0) if is_called_anew else 0)


def limit(row: Row) -> str:
    """Return what limits a product by the peaks of its device: launch, memory or computation."""
    m, n, k = (int(row[name]) for name in SHAPE)
    device, wide = device_of(row["gpu"]), 2 if row["dtype"] in ("bfloat16", "float16") else 1
    kind = {"fp8": "float8", "fp8_block": "float8", "nvfp4": "float4"}.get(row["dtype"], row["dtype"])
    computing = 2 * m * n * k / device.peaks.get(kind, device.peaks["bfloat16"])
    moving = (wide * (m + n) * k + 2 * m * n) / device.peak_memory_bandwidth
    launching = device.launch_ps / SECOND
    return max((computing, "computation"), (moving, "memory"), (launching, "launch"))[1]


def _calls(m: int, n: int, k: int, dtype: str, by_tensor: bool):  # type: ignore[no-untyped-def]
    """Yield operations with their arguments and results, without data."""

    def made(*shape: int, of: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.empty(shape, dtype=of, device="meta")

    x, result = made(m, k), made(m, n)
    if dtype in ("bfloat16", "float16"):
        yield _aten.mm.default, (x, made(n, k).t()), {}, result
        return
    if dtype == "nvfp4":
        narrow, packed, block = torch.float4_e2m1fn_x2, 2, _GROUP
    else:
        narrow, packed, block = torch.float8_e4m3fn, 1, _BLOCK if dtype == "fp8_block" else k
    quantised, weight = made(m, k // packed, of=narrow), made(n, k // packed, of=narrow)
    scale = torch.float8_e4m3fn if dtype == "nvfp4" else torch.float32
    of_rows = made(m, -(-k // block), of=scale)
    of_columns = made(-(-k // block), -(-n // block) if dtype == "fp8_block" else n, of=scale)
    if by_tensor:
        maxima, largest = made(m, 1), made(1, 1)
        yield _aten.amax.default, (x, [1], True), {}, maxima
        yield _aten.amax.default, (maxima, [0], True), {}, largest
        yield _aten.mul.Tensor, (largest, largest), {}, largest
    yield _aten._to_copy.default, (x,), {"dtype": narrow}, quantised
    yield _aten._scaled_mm.default, (quantised, weight.t(), of_rows, of_columns), {}, result
