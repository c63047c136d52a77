"""Lost efficiency of published trainings: predicted by `simulate_step` with all inefficiencies, and measured.

The computation of a training is the bundled profile of its model, slowed or quickened until a step on one
GPU takes what the table's row of one GPU says.  What is predicted is what several GPUs lose of that.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
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


@dataclass(frozen=True)
class LostEfficiency:
    """What a training loses to scaling, as parts of the efficiency of one GPU.

    Attributes:
        training: that was measured.
        measured: lost efficiency.
        ideal: predicted by messages alone.
        expected: predicted with inefficiencies.
        inefficiencies: terms that are in it.
    """

    training: Training
    measured: float
    ideal: float
    expected: float
    inefficiencies: tuple[str, ...]

    @property
    def error(self) -> float:
        """Expected less measured: negative where the prediction is too good."""
        return self.expected - self.measured

    def row(self) -> dict[str, Any]:
        """Return it as a JSON row."""
        own = asdict(self)
        return {**own.pop("training"), **own, "error": self.error}


@dataclass(frozen=True)
class Summary:
    """Lost efficiency of a family of trainings.

    Attributes:
        family: which.
        count: how many.
        measured: median.
        ideal: median, of messages alone.
        expected: median.
        median_error: of absolute differences between expected and measured.
        ideal_error: the same of messages alone.
        worst_error: the largest in absolute value, with its sign.
        within: part of the trainings whose error is at most 3 points.
    """

    family: str
    count: int
    measured: float
    ideal: float
    expected: float
    median_error: float
    ideal_error: float
    worst_error: float
    within: float


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
        training,
        1 - training.efficiency,
        1 - ideal.efficiency,
        1 - expected.efficiency,
        expected.inefficiencies,
    )


def ring_rate(calibrating: Iterable[Training]) -> float:
    """Return the bytes/s of a ring, the median over trainings that communicate after the backward pass."""
    rates = []
    for one in calibrating:
        communicating = one.alone_seconds / one.efficiency - one.alone_seconds
        nbytes = load_profile(one.profile).nbytes
        rates.append(2 * (one.gpus - 1) / one.gpus * nbytes / communicating)
    return statistics.median(rates)


def summaries(found: Sequence[LostEfficiency]) -> list[Summary]:
    """Return the errors by role, number of nodes, profile and set."""
    judged = [one for one in found if one.training.role == "judge"]
    families = {
        "several nodes": [one for one in judged if one.training.nodes > 1],
        "one node": [one for one in judged if one.training.nodes == 1],
        "calibrating": [one for one in found if one.training.role == "calibrate"],
    }
    for name in dict.fromkeys(one.training.profile for one in judged):
        families[name] = [one for one in judged if one.training.profile == name]
    for name in dict.fromkeys(one.training.set for one in judged):
        families[name] = [one for one in judged if one.training.set == name]
    return [_summary(name, own) for name, own in families.items() if own]


def _summary(family: str, own: Sequence[LostEfficiency]) -> Summary:
    return Summary(
        family=family,
        count=len(own),
        measured=statistics.median(one.measured for one in own),
        ideal=statistics.median(one.ideal for one in own),
        expected=statistics.median(one.expected for one in own),
        median_error=statistics.median(abs(one.error) for one in own),
        ideal_error=statistics.median(abs(one.ideal - one.measured) for one in own),
        worst_error=max((one.error for one in own), key=abs),
        within=sum(abs(one.error) <= 0.03 for one in own) / len(own),
    )


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
