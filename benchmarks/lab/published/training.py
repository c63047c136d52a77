"""Lost efficiency of published trainings: predicted by `simulate_step` with all inefficiencies, and measured.

The computation of a training is the bundled profile of its model, slowed or quickened until a step on one
GPU takes what the table's row of one GPU says.  What is predicted is what several GPUs lose of that.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import cache, partial
from typing import Any

from benchmarks.lab.published.training_clusters import device_of, network_of
from benchmarks.lab.published.training_rows import Training, hardware_of
from collectives.timing import Assumptions
from ddp.profiles import Profile, load_profile
from ddp.step.simulated_step import simulate_step
from ddp.step.step_run import StepRun
from sim.units import SECOND
from testbed.calibration.confidence import Compared, Errors
from testbed.output.table import grouped


@dataclass(frozen=True)
class LostEfficiency(Compared):
    """What a training is expected to lose to scaling, and lost: parts of the efficiency of one GPU.

    Attributes:
        training: that was measured.
        ideal: predicted by messages alone.
        inefficiencies: terms that are in the prediction.
    """

    training: Training
    ideal: float
    inefficiencies: tuple[str, ...]

    @property
    def error(self) -> float:
        """Expected less measured: negative where the prediction is too good."""
        return self.predicted - self.measured

    def as_json(self) -> dict[str, Any]:
        """Return it as a JSON row."""
        return {
            **asdict(self.training),
            "measured": self.measured,
            "ideal": self.ideal,
            "expected": self.predicted,
            "inefficiencies": list(self.inefficiencies),
            "error": self.error,
        }


def compared(
    known: Iterable[Training], pcie_rate: float, advance: Callable[[str], None] = lambda _: None
) -> list[LostEfficiency]:
    """Return each training beside its prediction.

    Args:
        known: trainings that calibrate or judge.
        pcie_rate: bytes/s of a ring where there is no NVLink, see `ring_rate`.
        advance: is told of every training.
    """
    found = []
    for one in known:
        found.append(lost_efficiency(one, pcie_rate))
        advance(f"{one.set}, {one.model}, {one.gpus} GPUs")
    return found


def lost_efficiency(training: Training, pcie_rate: float) -> LostEfficiency:
    """Return *training* beside its prediction, with rings of *pcie_rate* bytes/s where there is no NVLink."""
    ideal, expected = (_step(training, pcie_rate, is_real=is_real) for is_real in (False, True))
    return LostEfficiency(
        predicted=1 - expected.efficiency,
        measured=1 - training.efficiency,
        training=training,
        ideal=1 - ideal.efficiency,
        inefficiencies=expected.inefficiencies,
    )


def ring_rate(calibrating: Iterable[Training]) -> float:
    """Return the bytes/s of a ring, the median over trainings that communicate after the backward pass."""
    rates = []
    for one in calibrating:
        communicating = one.alone_seconds / one.efficiency - one.alone_seconds
        nbytes = load_profile(one.profile).nbytes
        rates.append(2 * (one.gpus - 1) / one.gpus * nbytes / communicating)
    return statistics.median(rates)


def families(found: Sequence[LostEfficiency]) -> dict[str, list[LostEfficiency]]:
    """Return trainings by role, number of nodes, profile and set."""
    judged = [one for one in found if one.training.role == "judge"]
    groups = {
        "several nodes": [one for one in judged if one.training.nodes > 1],
        "one node": [one for one in judged if one.training.nodes == 1],
        "calibrating": [one for one in found if one.training.role == "calibrate"],
        **grouped(judged, lambda one: one.training.profile),
        **grouped(judged, lambda one: one.training.set),
    }
    return {name: own for name, own in groups.items() if own}


def summary(family: str, own: Sequence[LostEfficiency]) -> dict[str, Any]:
    """Return medians and errors of the trainings of a *family*, as JSON types; *within* are 3 points."""
    expected = Errors.of(own)
    ideal = Errors.of(replace(one, predicted=one.ideal) for one in own)
    assert expected is not None
    assert ideal is not None
    return {
        "family": family,
        "count": len(own),
        "measured": statistics.median(one.measured for one in own),
        "ideal": statistics.median(one.ideal for one in own),
        "expected": statistics.median(one.predicted for one in own),
        "median_error": expected.median,
        "ideal_error": ideal.median,
        "worst_error": expected.worst,
        "within": sum(abs(one.error) <= 0.03 for one in own) / len(own),
    }


@cache
def _step(training: Training, pcie_rate: float, *, is_real: bool) -> StepRun:
    """Return a step of *training*, whose computation takes on one GPU what was measured.

    With links alone, or as a real run is expected to be.
    """
    hardware = hardware_of(training.set)
    network = network_of(training.set, hardware, pcie_rate)
    assumes = partial(Assumptions.of_a_real_run, transport_model="nccl", device=device_of(hardware))

    def run(profile: Profile, num_ranks: int) -> StepRun:
        topology = network.topology(num_ranks)
        assumed = assumes(topology) if is_real else Assumptions.ideal(transport_model="nccl")
        return simulate_step(profile, topology=topology, strategy=training.strategy, assumptions=assumed)

    profile = load_profile(training.profile)
    alone = run(profile, 1)
    optimizer = Fraction(alone.time_ps - alone.compute_ps, SECOND)
    computing = Fraction(training.alone_seconds) - optimizer
    return run(profile.slowed(computing * SECOND / alone.compute_ps), training.gpus)
