"""Steps of training, predicted from a device file first and then measured on this processor.

Steps are measured twice: as the C library hands out memory by default, and with memory kept by the process,
as kernels are measured for a device file.  The second is what the prediction is of; the first says what is
left out.  A product is timed beside each model, as its file should know how long that takes: what it takes
longer is this machine's, not the model's.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch

from collectives.formats.whole_file import write_whole
from collectives.virtual import run
from collectives.virtual.computation import Roofline
from collectives.virtual.notices import Notices
from sim.cluster import Cluster
from sim.hardware import Device
from sim.topology import Topology
from sim.units import SECOND
from testbed.calibration.confidence import Compared
from testbed.calibration.device.measuring import with_threads
from testbed.calibration.device.memory import keep_memory
from testbed.calibration.judge.models import MODELS, TrainedModel
from testbed.output.table import Advance

WARM_UP_STEPS = 2
MEASURED = 9
"""Steps of a model, and calls of the product beside it, of which the median counts."""
REFERENCE = 1024
"""Edge of the square matrices of the product that is timed beside."""


@dataclass(frozen=True)
class PredictedStep:
    """What a step of training should take.

    Attributes:
        seconds: of the step.
        notices: what the prediction could not take from the device's measured shapes.
    """

    seconds: float
    notices: tuple[str, ...]


def predicted_step(model: TrainedModel, device: Device) -> PredictedStep:
    """Return what a step of *model* takes on *device*, after a first one that sets the optimizer up."""
    step = model.begin()

    def work(rank: int) -> int:
        step()
        began = _now_ps()
        step()
        return _now_ps() - began

    alone = Topology.switch(num_ranks=1, bandwidth="1GB/s", latency="1us")
    outcome = run(work, network=alone, compute=Roofline(device))
    return PredictedStep(outcome.results[0] / SECOND, Notices.of(outcome.cluster).texts)


@dataclass(frozen=True)
class StepRow(Compared):
    """A step of training, predicted from the device file and measured: the median, with memory kept.

    Attributes:
        case: the model.
        description: of it, its batch and its optimizer.
        spread: how far the middle half of the steps lies apart, as a part of the median.
        default_seconds: the median as the C library hands out memory by default.
        reference: how many times as long as the file says a product took beside, the median of calls.
        notices: what the prediction could not take from measured shapes.
    """

    case: str
    description: str
    spread: float
    default_seconds: float
    reference: float
    notices: tuple[str, ...]


@dataclass(frozen=True)
class ValidatedDevice:
    """Rows of a device, and the file in which predictions stood before anything was measured.

    Attributes:
        device: its name.
        description: of it.
        threads: of the processor that measured.
        digest: SHA-256 of the file of predictions.
        rows: of each model.
    """

    device: str
    description: str
    threads: int
    digest: str
    rows: Sequence[StepRow]


def number_of_tasks() -> int:
    """Return how often `validate_device` tells what it is doing."""
    return 3 * len(MODELS)


def validate_device(device: Device, threads: int, predictions: Path, advance: Advance) -> ValidatedDevice:
    """Return steps of all models, predicted on *device* and measured on this processor.

    Args:
        device: that describes this processor with as many *threads*.
        threads: that a step may use.
        predictions: the file to which predictions are written before measuring.
        advance: is told what is being done.
    """
    predicted: dict[str, PredictedStep] = {}
    for model in MODELS.values():
        advance(f"predicting a step of {model.name}")
        predicted[model.name] = predicted_step(model, device)
    text = json.dumps({name: asdict(step) for name, step in predicted.items()}, indent=2) + "\n"
    write_whole(predictions, text)

    default: dict[str, float] = {}
    for model in MODELS.values():
        advance(f"measuring {model.name}")
        default[model.name], _ = middle(measured_step(model, threads))

    keep_memory()
    rows = []
    for model in MODELS.values():
        advance(f"measuring {model.name} with memory kept")
        before = _reference(device, threads)
        seconds, spread = middle(measured_step(model, threads))
        rows.append(
            StepRow(
                case=model.name,
                description=model.description,
                predicted=predicted[model.name].seconds,
                measured=seconds,
                spread=spread,
                default_seconds=default[model.name],
                reference=statistics.mean((before, _reference(device, threads))),
                notices=predicted[model.name].notices,
            )
        )
    digest = hashlib.sha256(text.encode()).hexdigest()
    return ValidatedDevice(device.name, device.description, threads, digest, rows)


def measured_step(model: TrainedModel, threads: int = 1) -> Sequence[float]:
    """Return the seconds of steps of *model* on this machine's processor with so many *threads*."""
    with with_threads(threads):
        step = model.begin()
        for _ in range(WARM_UP_STEPS):
            step()
        return _seconds(step)


def middle(seconds: Sequence[float]) -> tuple[float, float]:
    """Return the median, and how far the middle half lies apart as a part of it."""
    quarters = statistics.quantiles(seconds, n=4)
    median = statistics.median(seconds)
    return median, (quarters[2] - quarters[0]) / median


def _reference(device: Device, threads: int) -> float:
    """Return how many times as long as *device* says a product takes now."""
    x, y = torch.rand(REFERENCE, REFERENCE), torch.rand(REFERENCE, REFERENCE)
    with with_threads(threads):
        seconds = _seconds(partial(torch.mm, x, y))

    operations, nbytes = 2 * REFERENCE**3, 3 * 4 * REFERENCE**2
    table = device.kernels.get(("product", "float32"))
    if table is None:
        expected = device.duration_ps(operations, nbytes, "float32")
    else:
        expected = table.duration_ps(operations, dict.fromkeys("mnk", REFERENCE))
    return statistics.median(seconds) * SECOND / expected


def _seconds(call: Callable[[], object]) -> list[float]:
    """Return what each of `MEASURED` calls takes."""
    seconds = []
    for _ in range(MEASURED):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return seconds


def _now_ps() -> int:
    """Return the virtual time of the rank on whose thread this is."""
    rank_thread = Cluster.current()
    assert rank_thread is not None
    return rank_thread.now_ps()
