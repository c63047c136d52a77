"""Training steps of Llama-like models on H100s, as ``testbed plan --layouts`` composes them.

What the steps did is what nanotron of early 2025 does (`testbed.planning.layouts.framework`).  No script is
run, so a table of hundreds of rows takes seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from benchmarks.lab.predicted.devices import device_of
from benchmarks.lab.predicted.rows import Row
from sim import load_network
from testbed.planning.layouts.framework import FRAMEWORKS, fullest_bytes, peak_bytes
from testbed.planning.layouts.layout import Layout, Training
from testbed.planning.layouts.machine import Kernels, Machine, Messages
from testbed.planning.layouts.step import COMPUTATION, lost, step_seconds
from testbed.planning.layouts.transformer import Transformer

NEEDED = (
    "layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "tied", "nodes", "gpus", "dp", "tp", "pp",
    "zero", "mbs", "ga", "seq",
)  # fmt: skip
LARGE_PART = 0.25
"""Of a step, from which on a cause of lost time is its limit."""
GPU, NETWORK = "h100", "aws-p5"
FRAMEWORK = FRAMEWORKS["nanotron"]


def training_of(row: Row) -> Training:
    """Return the step that a row of a table measured."""
    own = {name: int(row[name]) for name in NEEDED}
    heads, vocabulary, tied = (own["heads"], own["kv_heads"]), own["vocab"], bool(own["tied"])
    model = Transformer(own["layers"], own["hidden"], *heads, own["ffn"], vocabulary, tied)
    layout = Layout(own["dp"], own["tp"], own["pp"], zero=own["zero"], micro_batch=own["mbs"])
    return Training(model, layout, own["seq"], own["dp"] * own["mbs"] * own["ga"])


@cache
def machine(gpus: int) -> Machine:
    """Return so many GPUs of the table."""
    messages = Messages(load_network(NETWORK).topology(gpus))
    return Machine(Kernels(device_of(GPU)), messages, FRAMEWORK)


def predicted(row: Row) -> Mapping[str, Any]:
    """Return tokens a second and GPU, empty where it does not run, whether it does, and rank 0's peak."""
    training, gpus = training_of(row), int(row["gpus"])
    memory = device_of(GPU).memory_bytes
    assert memory is not None
    peak = peak_bytes(training, FRAMEWORK.memory)
    fullest = fullest_bytes(training, FRAMEWORK.memory)
    fits = fullest <= FRAMEWORK.memory.usable * memory and not training.leaves_stages_empty
    speed = training.tokens / step_seconds(training, machine(gpus)) / gpus if fits else None
    return {"predicted": speed, "predicted_fits": int(fits), "predicted_peak_gb": peak / 2**30}


def limit(row: Row) -> str:
    """Return what limits a step: computation, or the cause to which more than a quarter of it is lost."""
    training = training_of(row)
    parts = dict(lost(training, machine(int(row["gpus"]))))
    parts.pop(COMPUTATION)
    cause = max(parts, key=lambda name: parts[name])
    most = parts[cause] / step_seconds(training, machine(int(row["gpus"])))
    return cause.replace("_", " ") if most > LARGE_PART else COMPUTATION
