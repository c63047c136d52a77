"""Constants of device files, fitted to tables of measured kernels.

What is fitted is what the model charges: each fit changes constants of a device and asks the same functions.
Least squares of the logarithm of predicted by measured time, errors beyond a scale counted linearly (soft
L1), from one start: the same rows give the same constants.  Rows that are kept back
(`benchmarks.lab.predicted.rows.is_kept_back`) are never seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import log

import numpy as np

from benchmarks.lab.predicted import attention, experts, products, steps
from benchmarks.lab.predicted.devices import device_of
from benchmarks.lab.predicted.rows import Errors, Row, is_kept_back
from collectives.virtual.computation.cuda.experts import layer_ps
from collectives.virtual.computation.cuda.products import product_ps
from sim.hardware import AttentionRates, Clocks, Device, ExpertConstants, ProductConstants
from sim.units import SECOND
from testbed.planning.layouts.framework import Memory, peak_bytes

TYPES = {"bfloat16": "bfloat16", "fp8": "float8", "fp8_block": "float8_block", "nvfp4": "float4"}
"""Types of device files by those of tables."""
_BYTES = {"bfloat16": 2.0, "fp8": 1.0, "fp8_block": 1.0, "nvfp4": 0.5625}
Model = Callable[[Sequence[float], Row], float]
"""Returns what a row takes, in microseconds, with constants."""


@dataclass(frozen=True)
class Fit:
    """What a fit found.

    Attributes:
        name: of what was fitted, such as ``h100_sxm bfloat16``.
        constants: by name.
        seen: errors of the rows that were fitted to.
        kept_back: errors of those that were not.
        chosen: errors of those among the latter that are of training shapes, or large.
    """

    name: str
    constants: Mapping[str, float]
    seen: Errors | None
    kept_back: Errors | None
    chosen: Errors | None


@dataclass(frozen=True)
class Family:
    """What is fitted of one kind of kernel.

    Attributes:
        names: of the constants.
        start: of each.
        low: that each may have.
        high: that each may have.
        scale: of errors beyond which they count linearly.
    """

    names: Sequence[str]
    start: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    scale: float = 0.1


PRODUCTS = Family(
    ("burst", "small", "edge", "launch_us", "memory", "load", "wave"),
    (0.85, 6, 130, 3.5, 0.8, 0.15, 0.5),
    (0.3, 0, 0, 0, 0.3, 0, 0),
    (1.0, 80, 600, 20, 1.0, 0.8, 1),
    0.05,
)
PRODUCTS_FLOAT4 = replace(PRODUCTS, high=(1.0, 400, 3000, 20, 1.0, 0.8, 1))
STEADY = Family(("steady",), (0.65,), (0.2,), (1.0,), 0.05)
EXPERTS = Family(
    ("rate", "small", "edge", "floor_us", "memory", "activations", "each_us", "elsewhere"),
    (0.5, 20, 100, 25, 0.7, 1, 0.05, 0.3),
    (0.02, 0, 0, 1, 0.1, 0, 0, 0),
    (1.2, 300, 3000, 300, 1.2, 20, 5, 3),
)

MEMORY = Family(
    ("hidden", "logit", "gathered", "sharded", "beside_gb"),
    (24, 10, 30, 1, 0.4),
    (0, 0, 0, 0, 0),
    (100, 30, 300, 10, 2),
    0.05,
)


def fitted(
    name: str,
    rows: Sequence[Row],
    shape: Sequence[str],
    family: Family,
    model: Model,
    chosen: Callable[[Row], bool],
    column: str = "time_us",
) -> Fit:
    """Return the constants of *family* with which *model* is nearest to those of *rows* that are seen."""
    from scipy.optimize import least_squares

    seen = [row for row in rows if not is_kept_back(row, shape)]
    kept = [row for row in rows if is_kept_back(row, shape)]
    measured = [float(row[column]) for row in seen]

    def off(constants: Sequence[float]) -> np.ndarray:
        return np.array(
            [log(model(constants, row) / value) for row, value in zip(seen, measured, strict=True)]
        )

    start = np.array(family.start, dtype=float)
    found = least_squares(
        off,
        start,
        bounds=(family.low, family.high),
        loss="soft_l1",
        f_scale=family.scale,
        x_scale=np.maximum(np.abs(start), 0.1),
        diff_step=1e-3,
        max_nfev=40,
    ).x

    def errors(own: Sequence[Row]) -> Errors | None:
        return Errors.of(model(found, row) / float(row[column]) - 1 for row in own)

    constants = dict(zip(family.names, map(float, found), strict=True))
    return Fit(name, constants, errors(seen), errors(kept), errors([row for row in kept if chosen(row)]))


def fit_products(rows: Sequence[Row]) -> Fit:
    """Return the constants of short runs of matrix products of one GPU and type."""
    device, dtype = device_of(rows[0]["gpu"]), rows[0]["dtype"]

    def model(constants: Sequence[float], row: Row) -> float:
        burst, small, edge, launch_us, memory, load, wave = constants
        peak = device.peaks[TYPES[dtype]]
        own = ProductConstants(
            burst * peak,
            burst * peak,
            burst * peak,
            bandwidth=int(memory * device.peak_memory_bandwidth),
            launch_ps=round(launch_us * 1e6),
            load=load,
            small=small,
            edge=edge,
            wave=wave,
        )
        return _product_us(row, own, device, "burst")

    name = f"{rows[0]['gpu']} {dtype}"
    family = PRODUCTS_FLOAT4 if dtype == "nvfp4" else PRODUCTS
    return fitted(name, rows, products.SHAPE, family, model, products.is_of_training)


def fit_steady(rows: Sequence[Row]) -> Fit:
    """Return the steady rate of long runs of products, all other constants those of the device's file."""
    device, dtype = device_of(rows[0]["gpu"]), TYPES[rows[0]["dtype"]]

    def model(constants: Sequence[float], row: Row) -> float:
        own = replace(device.products[dtype], steady=constants[0] * device.peaks[dtype])
        return _product_us(row, own, device, "steady")

    name = f"{rows[0]['gpu']} {rows[0]['dtype']} steady"
    return fitted(name, rows, products.SHAPE, STEADY, model, products.is_of_training)


def _product_us(row: Row, constants: ProductConstants, device: Device, clocks: Clocks) -> float:
    """Return what `products.product_us` does, of *constants* that stand in no file."""
    m, n, k = (int(row[name]) for name in products.SHAPE)
    each = _BYTES[row["dtype"]]
    nbytes = int(each * (m * k + n * k)) + 2 * m * n
    uncached = product_ps.__wrapped__
    whole_ps = uncached((m, n, k), 1, nbytes, constants, device.multiprocessors or 1, clocks)
    if row["dtype"] != "bfloat16":
        by_tensor = products.finds_one_scale(row)
        moved = int((2 + each + 2 * by_tensor) * m * k)
        whole_ps += (1 + 3 * by_tensor) * device.launch_ps + moved * SECOND // device.memory_bandwidth
    return float(whole_ps / SECOND * 1e6)


def fit_attention(rows: Sequence[Row]) -> Fit:
    """Return the constants of one family of attention kernels on one GPU."""
    device = device_of(rows[0]["gpu"])
    name = attention.FAMILIES[rows[0]["kernel"]] + ("_fp8" if rows[0]["dtype"] == "fp8" else "")
    heads = sorted({int(row["head_dim"]) for row in rows})
    heads = [heads[0], heads[-1]] if name.endswith("encoder") else heads
    family = Family(
        ("edge", "memory", "floor_us", *(f"head_{head}" for head in heads)),
        (64, 0.6, 8, *(0.4 for _ in heads)),
        (0, 0.08, 0.5, *(0.02 for _ in heads)),
        (1500, 1.5, 60, *(1.0 for _ in heads)),
    )

    def model(constants: Sequence[float], row: Row) -> float:
        edge, memory, floor_us, *parts = constants
        own = AttentionRates(
            1.0, 1.0, dict(zip(heads, parts, strict=True)), edge, memory, round(floor_us * 1e6)
        )
        return attention.attention_us(row, replace(device, attention={name: own}))

    return fitted(f"{rows[0]['gpu']} {name}", rows, attention.SHAPE, family, model, attention.is_large)


def fit_experts(rows: Sequence[Row]) -> Fit:
    """Return the constants of one library's layers of experts on one GPU, in one type."""
    device, dtype = device_of(rows[0]["gpu"]), experts.COMPUTES_IN[rows[0]["dtype"]]
    layers = {id(row): experts.layer_of(row) for row in rows}

    def model(constants: Sequence[float], row: Row) -> float:
        rate, small, edge, floor_us, memory, activations, each_us, elsewhere = constants
        each_ps, floor_ps = round(each_us * 1e6), round(floor_us * 1e6)
        own = ExpertConstants(rate, small, edge, memory, activations, each_ps, floor_ps, elsewhere)
        return layer_ps(layers[id(row)], own, device, dtype) / SECOND * 1e6

    name = f"{rows[0]['gpu']} {experts.kernels_of(rows[0])}"
    return fitted(name, rows, experts.SHAPE, EXPERTS, model, lambda row: row["distribution"] == "balanced")


def fit_memory(rows: Sequence[Row]) -> Fit:
    """Return what steps hold of memory besides what is counted by name."""
    trainings = {id(row): steps.training_of(row) for row in rows}

    def model(constants: Sequence[float], row: Row) -> float:
        hidden, logit, gathered, sharded, beside_gb = constants
        own = Memory(hidden, logit, gathered, sharded, beside_gb * 2**30)
        return peak_bytes(trainings[id(row)], own) / 2**30

    return fitted(
        "nanotron memory", rows, steps.NEEDED, MEMORY, model, lambda row: row["pp"] != "1", "peak_gb"
    )
