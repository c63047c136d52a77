"""Predictions for a shaped network: by the simulator, with the constants of a calibration of another one."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.lab.shaped.cases import Case
from benchmarks.lab.shaped.timing import ITEM_SIZE, Call
from collectives.execution.transport_model import TRANSPORT_MODELS
from collectives.timing import Job, Software, simulate_jobs
from ddp.profiles.profile import Profile
from ddp.step.simulated_step import simulate_step
from sim import LinkFailedError, Topology
from testbed.calibration.live.calibration import Calibration

TRANSPORT = TRANSPORT_MODELS["gloo"]


@dataclass(frozen=True)
class Predictor:
    """Foretells times on a network.

    Attributes:
        topology: with what TCP leaves of its links.
        calibration: of another network, for what software adds.
    """

    topology: Topology
    calibration: Calibration

    def seconds(self, case: Case) -> list[float]:
        """Return what each call of *case* takes.

        Raises:
            LinkFailedError: a message is lost with a link.
        """
        conditions = () if case.change is None else (case.change,)
        runs = simulate_jobs(
            [self._job(call) for call in case.calls], topology=self.topology, conditions=conditions
        )
        return [run.seconds for run in runs]

    def total(self, case: Case) -> float:
        """Return how long *case* takes until its last call is done, as long as no link is lost."""
        return max(self.seconds(case))

    def failure(self, case: Case) -> str | None:
        """Return of which links *case* loses messages, in words; None if of none."""
        try:
            self.seconds(case)
        except LinkFailedError as error:
            return ", ".join(error.links)
        return None

    def step(self, profile: Profile, algorithm: str, bucket_cap_mb: float) -> float:
        """Return the seconds of a training step of *profile* whose gradients are reduced by *algorithm*."""
        costs = self.calibration.software(algorithm)
        rate = costs.reduction_bandwidth
        run = simulate_step(
            profile,
            topology=self.topology,
            algorithm=algorithm,
            bucket_cap_mb=bucket_cap_mb,
            overhead=costs.overhead.value,
            arrival_overhead=costs.arrival_overhead.value,
            reduction_bandwidth=None if rate is None else rate.value,
            transport_model=TRANSPORT,
        )
        return run.seconds

    def _job(self, call: Call) -> Job:
        costs = self.calibration.software(call.algorithm)
        rate = costs.reduction_bandwidth
        return Job(
            call.algorithm,
            call.nbytes,
            collective=call.collective,
            placement=call.members or "packed",
            itemsize=ITEM_SIZE,
            software=Software(
                transport_model=TRANSPORT,
                overhead=costs.overhead.value,
                arrival_overhead=costs.arrival_overhead.value,
                reduction_bandwidth=None if rate is None else rate.value,
            ),
        )
