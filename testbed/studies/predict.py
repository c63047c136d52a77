"""Scaling of training steps: the reducer that trains, replayed on networks of many sizes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from testbed.output.table import Advance

if TYPE_CHECKING:
    from ddp import Profile
    from sim.topology.description import NetworkDescription


@dataclass(frozen=True)
class Point:
    """One simulated step.

    Attributes:
        profile: name of what is computed.
        network: name of what it runs on.
        strategy: when buckets are launched.
        ranks: world size.
        step_seconds: of one iteration.
        exposed_seconds: of it, in which communication keeps the compute waiting.
        efficiency: compute over iteration: 1 is perfect weak scaling.
        num_buckets: in which the gradients travel.
        engine: of the simulation.
    """

    profile: str
    network: str
    strategy: str
    ranks: int
    step_seconds: float
    exposed_seconds: float
    efficiency: float
    num_buckets: int
    engine: str


@dataclass(frozen=True)
class Scaling:
    """What was predicted, and from what.

    Attributes:
        points: in the order profile, network, strategy, ranks.
        topologies: digest of each topology, by ``network x ranks``.
        model: what the figures assume, in a sentence.
    """

    points: tuple[Point, ...]
    topologies: dict[str, str]
    model: str

    def rows(self) -> list[dict[str, Any]]:
        """Return the points as JSON rows."""
        return [asdict(point) for point in self.points]


def predict(
    profiles: Iterable[Profile],
    networks: Iterable[NetworkDescription],
    strategies: Sequence[str],
    ranks: Sequence[int],
    *,
    bucket_cap_mb: float,
    algorithm: str,
    advance: Advance,
) -> Scaling:
    """Simulate a training step of each profile on each network, for each number of ranks."""
    from ddp import simulate_step

    points: list[Point] = []
    topologies: dict[str, str] = {}
    networks = list(networks)
    for profile in profiles:
        for network in networks:
            for strategy in strategies:
                for num_ranks in ranks:
                    topology = network.topology(num_ranks)
                    topologies[f"{network.name} x {num_ranks}"] = topology.digest()
                    step = simulate_step(
                        profile,
                        topology=topology,
                        strategy=strategy,
                        bucket_cap_mb=bucket_cap_mb,
                        algorithm=algorithm,
                    )
                    points.append(
                        Point(
                            profile=profile.name,
                            network=network.name,
                            strategy=strategy,
                            ranks=num_ranks,
                            step_seconds=step.seconds,
                            exposed_seconds=step.exposed_seconds,
                            efficiency=step.efficiency,
                            num_buckets=step.num_buckets,
                            engine=step.engine,
                        )
                    )
                    advance(f"{profile.name} on {network.name}, {num_ranks} ranks")
    model = (
        f"weak scaling; {algorithm} all-reduce of {bucket_cap_mb:g} MiB buckets, launched by the reducer "
        "that trains; every rank computes as the profile says; messages wait for latency, then share link "
        "bandwidth max-min; no protocol overhead, no cost of the reduction, no stragglers"
    )
    return Scaling(tuple(points), topologies, model)
