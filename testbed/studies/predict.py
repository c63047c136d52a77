"""How training steps scale: the reducer that trains, replayed on networks of many sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from testbed.output.table import Advance, percent, seconds, table

if TYPE_CHECKING:
    from rich.table import Table

    from ddp import Profile
    from sim.topology.description import NetworkDescription

STRATEGY_TITLES = {
    "after_backward": "no overlap",
    "per_parameter": "overlap, no buckets",
    "wait_free": "overlap",
    "mg_wfbp": "optimal merging",
    "priority": "priority",
    "dear": "decoupled halves",
    "zero1": "sharded optimizer",
    "accumulate": "accumulation",
    "data_parallel": "DataParallel",
}
"""How strategies are headed in tables and legends, before their parameters."""

LEGEND = (
    "step: time of an iteration (accumulation: of its k passes); exposed: of it, communication that the "
    "compute waits for; scaling: efficiency, the compute's share of the step."
)


MAX_SIDE_BY_SIDE = 3
"""Strategies that a table has room for beside each other."""


def strategy_title(name: str) -> str:
    """Return how a strategy is headed: ``priority:credits=2`` as *priority (credits=2)*."""
    kind, _, parameters = name.partition(":")
    title = STRATEGY_TITLES.get(kind, kind)
    return f"{title} ({parameters.replace(',', ', ')})" if parameters else title


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


def scaling_tables(points: Sequence[Point], only_ranks: Sequence[int] | None = None) -> Iterator[Table]:
    """Yield a table for each profile: a line per network and number of ranks, of many strategies per each."""
    strategies = list(dict.fromkeys(point.strategy for point in points))
    if len(strategies) > MAX_SIDE_BY_SIDE:
        yield from _long_tables(points, only_ranks)
        return
    columns = ["network\n", "ranks\n"]
    for strategy in strategies:
        columns += [f"{strategy_title(strategy)}\nstep", "\nexposed", "\nscaling"]
    for profile in dict.fromkeys(point.profile for point in points):
        lines: dict[tuple[str, int], list[str]] = {}
        for point in points:
            if point.profile == profile and (only_ranks is None or point.ranks in only_ranks):
                figures = lines.setdefault((point.network, point.ranks), [])
                figures += [seconds(point.step_seconds), seconds(point.exposed_seconds)]
                figures.append(percent(point.efficiency))
        rows, shown = [], ""
        for (network, num_ranks), figures in lines.items():
            rows.append([network if network != shown else "", str(num_ranks), *figures])
            shown = network
        num_buckets = next(point.num_buckets for point in points if point.profile == profile)
        yield table(columns, rows, title=f"{profile}; {num_buckets} bucket{'s' * (num_buckets > 1)}")


def _long_tables(points: Sequence[Point], only_ranks: Sequence[int] | None) -> Iterator[Table]:
    """Yield a table for each profile, with a line per network, number of ranks and strategy."""
    columns = ["network", "ranks", "strategy", "buckets", "step", "exposed", "scaling"]
    for profile in dict.fromkeys(point.profile for point in points):
        own = [
            point
            for point in points
            if point.profile == profile and (only_ranks is None or point.ranks in only_ranks)
        ]
        places = dict.fromkeys((point.network, point.ranks) for point in own)
        rows, shown = [], ("", 0)
        for place in places:
            for point in own:
                if (point.network, point.ranks) != place:
                    continue
                rows.append(
                    [
                        place[0] if place[0] != shown[0] else "",
                        str(place[1]) if place != shown else "",
                        strategy_title(point.strategy),
                        str(point.num_buckets),
                        seconds(point.step_seconds),
                        seconds(point.exposed_seconds),
                        percent(point.efficiency),
                    ]
                )
                shown = place
        yield table(columns, rows, title=profile)
