"""Layers of routed experts of tables: which kernels a row ran, and how long one rank's share takes.

A row with a power law is the busiest rank's, of experts drawn from it.
"""

from __future__ import annotations

from math import ceil

from benchmarks.lab.predicted.devices import device_of
from benchmarks.lab.predicted.rows import Row
from collectives.virtual.computation.cuda.experts import ExpertLayer, layer_ps, rows_of_experts
from sim.hardware import Device
from sim.units import SECOND
from testbed.errors import UsageError

NEEDED = (
    "gpu", "dtype", "tokens", "hidden", "inter", "topk", "experts", "tp", "ep", "distribution", "framework",
    "kernel",
)  # fmt: skip
SHAPE = ("tokens", "hidden", "inter", "topk", "experts", "tp", "ep", "distribution")

BYTES = {
    "bfloat16": 2.0, "fp8": 1.0, "fp8_block": 1.0, "nvfp4": 0.5625, "int4_wo": 0.53, "w4a16_mxfp4": 0.53,
    "w4a8_mxfp4_mxfp8": 0.53,
}  # fmt: skip
"""Bytes of a weight, its share of scales included."""
COMPUTES_IN = {
    "bfloat16": "bfloat16", "fp8": "float8", "fp8_block": "float8", "nvfp4": "float4",
    "int4_wo": "bfloat16", "w4a16_mxfp4": "bfloat16", "w4a8_mxfp4_mxfp8": "float8",
}  # fmt: skip
_LIBRARIES = (
    ("marlin", "marlin"), ("deepgemm", "deepgemm"), ("trtllm_moe", "trtllm"), ("flashinfer_trtllm", "trtllm"),
    ("cutlass", "cutlass"), ("nongated", "cutlass"), ("triton", "triton"), ("fused_moe", "triton"),
    ("torch_flow", "cutlass"),
)  # fmt: skip
"""Libraries by what the names of their kernels contain."""


_TO_THE_FIRST = "0.5.10"
"""The version of SGLang in whose rows the tokens of a rank, those with an expert there, have it computed for
all their experts: those of other ranks as the rank's first."""


def kernels_of(row: Row) -> str:
    """Return whose kernels a row ran, by framework, library and type: a table ``[experts.NAME]``."""
    framework = "" if row["framework"] == "trtllm" else f"{row['framework']}_"
    return f"{framework}{_library(row)}_{row['dtype']}"


def _library(row: Row) -> str:
    return next((name for part, name in _LIBRARIES if part in row["kernel"]), "cutlass")


def table_of(row: Row, device: Device) -> str:
    """Return the table of a row, or the nearest that the device's file has: of its library, in its type.

    Raises:
        UsageError: it has none at all.
    """
    wanted = kernels_of(row)
    if wanted in device.experts:
        return wanted

    def distance(name: str) -> tuple[bool, bool, float, bool, str]:
        dtype = next(kind for kind in sorted(BYTES, key=len, reverse=True) if name.endswith(kind))
        computes_alike = COMPUTES_IN[dtype] == COMPUTES_IN[row["dtype"]]
        further_bytes = abs(BYTES[dtype] - BYTES[row["dtype"]])
        return (
            _library(row) not in name,
            not computes_alike,
            further_bytes,
            row["framework"] not in name,
            name,
        )

    if not device.experts:
        raise UsageError(f"{device.name}: its file has no kernels of experts")
    return min(device.experts, key=distance)


def layer_of(row: Row) -> ExpertLayer:
    """Return the share of one rank that a row measured.

    Raises:
        UsageError: a distribution or type that is not known.
    """
    tokens, hidden, inter, topk, experts, tp, ep = (int(row[name]) for name in SHAPE[:-1])
    distribution = row["distribution"]
    try:
        exponent = 0.0 if distribution == "balanced" else float(distribution.removeprefix("power_law_"))
        bytes_each = BYTES[row["dtype"]]
    except (ValueError, KeyError) as error:
        raise UsageError(
            f"{distribution}, {row['dtype']}: expected balanced or power_law_EXPONENT, and a type of "
            f"{', '.join(BYTES)}"
        ) from error
    rows = rows_of_experts(tokens, experts, topk, ep, exponent)
    elsewhere = tokens * topk - sum(rows)
    if row["framework"] == "sglang" and row.get("version", "").startswith(_TO_THE_FIRST):
        tokens = min(tokens, ceil(sum(rows)))
        rows, elsewhere = (rows[0] + tokens * topk - sum(rows), *rows[1:]), 0.0
    gated = "nongated" not in row["kernel"]
    return ExpertLayer(tokens, hidden, inter // tp, rows, gated, bytes_each, elsewhere)


def layer_us(row: Row) -> float:
    """Return how long the layer of a row takes, in microseconds."""
    device = device_of(row["gpu"])
    dtype = COMPUTES_IN[row["dtype"]]
    constants = device.experts[table_of(row, device)]
    return layer_ps(layer_of(row), constants, device, dtype) / SECOND * 1e6
