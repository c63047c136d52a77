"""Steps of training, predicted from a device file and measured on this machine."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from collectives.virtual import run
from collectives.virtual.computation import Roofline
from collectives.virtual.notices import Notices
from sim.cluster import Cluster
from sim.hardware import Device
from sim.topology import Topology
from sim.units import SECOND
from testbed.calibration.judge.models import TrainedModel

WARM_UP_STEPS = 2
MEASURED_STEPS = 9


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


def measured_step(model: TrainedModel, threads: int = 1) -> Sequence[float]:
    """Return the seconds of steps of *model* on this machine's processor with so many *threads*."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        step = model.begin()
        for _ in range(WARM_UP_STEPS):
            step()
        seconds = []
        for _ in range(MEASURED_STEPS):
            began = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - began)
        return seconds
    finally:
        torch.set_num_threads(before)


def middle(seconds: Sequence[float]) -> tuple[float, float]:
    """Return the median, and how far the middle half lies apart as a part of it."""
    quarters = statistics.quantiles(seconds, n=4)
    median = statistics.median(seconds)
    return median, (quarters[2] - quarters[0]) / median


def _now_ps() -> int:
    """Return the virtual time of the rank on whose thread this is."""
    rank_thread = Cluster.current()
    assert rank_thread is not None
    return rank_thread.now_ps()
