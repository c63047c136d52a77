"""Fused attention of tables: which family of kernels a row ran, and how long its forward pass takes.

Frameworks that keep keys and values in a paged cache write them there by a kernel of their own before: two
copies more, element by element.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from benchmarks.lab.predicted.devices import device_of
from benchmarks.lab.predicted.rows import Row
from collectives.virtual.computation.launches import Launches
from sim.hardware import Device
from sim.units import SECOND

NEEDED = ("gpu", "dtype", "batch", "seq", "heads", "kv_heads", "head_dim", "causal", "window", "kernel")
SHAPE = ("batch", "seq", "heads", "kv_heads", "head_dim", "causal", "window")
_aten = torch.ops.aten

FAMILIES = {
    "flash_attention": "fa2",
    "vllm_flash_attn": "vllm_fa2",
    "fa3": "fa3",
    "vllm_flash_attn_fa3": "vllm_fa3",
    "vllm_flash_attn_fa4": "vllm_fa4",
    "flash_attention_v3": "fa3_encoder",
    "vllm_vit_flash_attn_fa3": "fa3_encoder",
    "flash_attention_v4": "fa4_encoder",
    "vllm_vit_flash_attn_fa4": "fa4_encoder",
    "torch_flow": "trtllm",
    "torch_flow_flashinfer": "trtllm",
    "trtllm_mha": "trtllm_mha",
    "vllm_flashinfer_trtllmprefill": "flashinfer",
    "vllm_flashinfer_trtllmdecode": "flashinfer",
    "flashinfer": "flashinfer",
    "triton": "triton",
}
"""Tables ``[attention.NAME]`` of device files, by the kernel that a row names; ``_fp8`` behind those that
compute in float8."""
WRITE_CACHE = {"fa2", "fa3", "vllm_fa3", "vllm_fa4", "flashinfer"}
"""Families whose rows have copies of keys and values in them."""


def family_of(row: Row, device: Device) -> str:
    """Return the family that a row ran, or the nearest that the device's file has."""
    name = FAMILIES.get(row["kernel"], "")
    wanted = f"{name}_fp8" if row["dtype"] == "fp8" else name
    if wanted in device.attention:
        return wanted
    return name if name in device.attention else device.attention_kernels


def is_large(row: Row) -> bool:
    """Return whether a row is long enough for its arithmetic to decide."""
    batch, seq, heads = (int(row[name]) for name in ("batch", "seq", "heads"))
    return seq >= 1024 and batch * seq >= 4096 and heads >= 8


def attention_us(row: Row, device: Device | None = None) -> float:
    """Return how long the attention of a row takes, in microseconds; *device* instead of its GPU's.

    Raises:
        NotSupportedError: the device has no such type.
    """
    known = device_of(row["gpu"]) if device is None else device
    family = family_of(row, known)
    launches = Launches(replace(known, attention_kernels=family))
    batch, seq, heads, kv_heads, head, causal, window = (int(row[name]) for name in SHAPE)
    of = torch.float8_e4m3fn if row["dtype"] == "fp8" else torch.bfloat16

    query = torch.empty(batch, seq, heads, head, dtype=of, device="meta")
    key = torch.empty(batch, seq, kv_heads, head, dtype=of, device="meta")
    output = torch.empty(batch, seq, heads, head, dtype=torch.bfloat16, device="meta")
    args = (query, key, key, None, None, seq, seq, 0.0, bool(causal), False)
    kwargs = {"window_size_left": window - 1 if 0 < window < seq else None}
    calls: list[tuple[Any, ...]] = [(_aten._flash_attention_forward.default, args, kwargs, (output,))]
    if family.removesuffix("_fp8") in WRITE_CACHE:
        new = torch.empty(2, *key.shape, dtype=torch.bfloat16, device="meta")
        calls.append((_aten.copy_.default, (key.new_empty(new.shape), new), {}, new))
    whole_ps = sum(one.duration_ps for call in calls for one in launches.of(*call))
    return whole_ps / SECOND * 1e6
