"""Scaling of training steps: the reducer that trains, replayed on networks of many sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

from sim.units import to_seconds
from testbed.output.table import Advance

if TYPE_CHECKING:
    from collectives.timing import Assumptions
    from ddp import Profile, StepRun
    from sim.topology import Topology
    from sim.topology.description import NetworkDescription
    from testbed.studies.carriers import Carrier


@dataclass(frozen=True)
class Point:
    """One simulated step.

    Attributes:
        profile: name of what is computed.
        network: name of what it runs on.
        strategy: when buckets are launched.
        ranks: world size.
        seconds: of one iteration.
        exposed_seconds: of it, in which communication keeps the compute waiting, and inefficiencies.
        efficiency: the iteration of one rank alone over this one: 1 is perfect weak scaling.
        num_buckets: in which the gradients travel.
        engine: of the simulation.
        transport_model: how steps of programs were completed.
        model: by which buckets were timed: ``links`` or the name of a closed form.
        inefficiencies: terms that were counted besides (see `ddp.step.inefficiencies`).
        assumed: all that was counted besides the network, in words.
        algorithm: of the all-reduce that was asked for, or goes by default.
        each_size_once: whether each size of bucket was simulated once, as a step has too many messages.
        scaling: ``weak``, where every rank computes what the profile says; or ``strong``, where all together
            compute what the fewest ranks do, and efficiency is against one rank that does it all.
    """

    profile: str
    network: str
    strategy: str
    ranks: int
    seconds: float
    exposed_seconds: float
    efficiency: float
    num_buckets: int
    engine: str
    transport_model: str
    model: str
    inefficiencies: tuple[str, ...]
    assumed: str
    algorithm: str
    each_size_once: bool
    scaling: str = "weak"

    def against(self, alone_ps: int) -> Point:
        """Return the point of strong scaling, where one rank that computes it all takes so long."""
        efficiency = to_seconds(alone_ps) / (self.ranks * self.seconds)
        return replace(self, efficiency=efficiency, scaling="strong")

    @classmethod
    def of(
        cls, profile: str, network: str, strategy: str, algorithm: str, ranks: int, run: StepRun, assumed: str
    ) -> Point:
        """Return the point of a step that was simulated."""
        return cls(
            profile=profile,
            network=network,
            strategy=strategy,
            ranks=ranks,
            seconds=run.seconds,
            exposed_seconds=run.exposed_seconds,
            efficiency=run.efficiency,
            num_buckets=run.num_buckets,
            engine=run.engine,
            transport_model=run.transport_model,
            model=run.model,
            inefficiencies=run.inefficiencies,
            assumed=assumed,
            algorithm=algorithm,
            each_size_once=run.each_size_once,
        )


@dataclass(frozen=True)
class Scaling:
    """What was predicted, and from what.

    Attributes:
        points: in the order profile, network, strategy, ranks.
        topologies: digest of each topology, by ``network x ranks``.
        model: what the figures assume, in a sentence.
        assumed: what is counted, by network.
        carriers: what carries the buckets.
    """

    points: tuple[Point, ...]
    topologies: dict[str, str]
    model: str
    assumed: dict[str, Assumptions]
    carriers: tuple[Carrier, ...] = ()

    def rows(self) -> list[dict[str, Any]]:
        """Return the points as JSON rows."""
        return [asdict(point) for point in self.points]


@dataclass
class _Setup:
    """A network of some size, and what is sent on it.

    Attributes:
        network: as its file describes it.
        topology: of that size.
        model: by which steps are expected.
        sizes: of all buckets, each with the collective by which it travels.
    """

    network: NetworkDescription
    topology: Topology
    model: Assumptions | None = None
    sizes: set[tuple[str, int]] = field(default_factory=set)


def predict(
    profiles: Iterable[Profile],
    networks: Iterable[NetworkDescription],
    strategies: Sequence[str],
    ranks: Sequence[int],
    *,
    bucket_cap_mb: float,
    algorithm: str | None,
    advance: Advance,
    counts: Callable[[Topology], Assumptions],
    strong: bool = False,
) -> Scaling:
    """Simulate a training step of each profile on each network, for each number of ranks.

    Args:
        profiles: what a rank computes.
        networks: what it runs on.
        strategies: when buckets are launched.
        ranks: world sizes.
        bucket_cap_mb: size of a bucket, in MiB.
        algorithm: of the all-reduce; None: that which goes by default on each network.
        advance: is told of every step.
        counts: what is counted on a topology besides the network.
        strong: whether the global batch is that of the fewest ranks, so that more of them compute less each;
            otherwise every rank computes what the profile says.
    """
    from collectives.timing import default_algorithm
    from ddp import simulate_step
    from testbed.calibration.live.calibration import origin_of
    from testbed.studies.carriers import carriers_of

    points: list[Point] = []
    topologies: dict[str, str] = {}
    assumed_on: dict[str, Assumptions] = {}
    fewest = min(ranks, default=1)
    setups: dict[tuple[int, int], _Setup] = {}
    for profile, network, strategy, num_ranks in product(profiles, networks, strategies, ranks):
        if (id(network), num_ranks) not in setups:
            setups[id(network), num_ranks] = _Setup(network, network.topology(num_ranks))
        setup = setups[id(network), num_ranks]
        topology = setup.topology
        own, model = algorithm or default_algorithm(topology), counts(topology)
        share = Fraction(fewest, num_ranks) if strong else Fraction(1)
        topologies[f"{network.name} x {num_ranks}"] = topology.digest()
        assumed_on[network.name] = model
        step: Callable[..., StepRun] = partial(
            simulate_step,
            strategy=strategy,
            bucket_cap_mb=bucket_cap_mb,
            algorithm=own,
            assumptions=model,
        )
        run = step(profile.slowed(share), topology=topology)

        used = replace(model, model=run.model)
        assumed = run.in_words(used)
        if (origin := origin_of(network)) is not None and run.model == "links" and num_ranks > 1:
            sizes = origin.beyond(*(bucket.nbytes for bucket in run.buckets))
            assumed += f"; buckets are beyond what was measured: {sizes}" if sizes else ""
        point = Point.of(profile.name, network.name, strategy, own, num_ranks, run, assumed)
        if strong:
            point = point.against(
                step(profile.slowed(Fraction(fewest)), topology=network.topology(1)).time_ps
            )
        points.append(point)
        setup.model = used
        setup.sizes |= {(bucket.collective, bucket.nbytes) for bucket in run.buckets if bucket.nbytes}
        advance(f"{profile.name} on {network.name}, {num_ranks} ranks")

    carriers = [
        carrier
        for setup in setups.values()
        if setup.topology.num_ranks > 1 and setup.model is not None
        for carrier in carriers_of(
            setup.network.name,
            setup.topology,
            algorithm or default_algorithm(setup.topology),
            setup.model,
            setup.sizes,
        )
    ]

    names = " or ".join(dict.fromkeys(point.algorithm for point in points))
    scaled = (
        f"strong scaling of the batch that {fewest} of the profile's ranks have" if strong else "weak scaling"
    )
    computes = f"every rank computes {'its share of what' if strong else 'as'} the profile says"
    model_in_words = (
        f"{scaled}; {names} all-reduce of {bucket_cap_mb:g} MiB buckets, launched by the reducer "
        f"that trains; {computes}; messages wait for latency, then share link bandwidth max-min"
    )
    return Scaling(tuple(points), topologies, model_in_words, assumed_on, tuple(carriers))
