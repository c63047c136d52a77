"""Scaling of training steps: the reducer that trains, replayed on networks of many sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, cast

from sim.units import to_seconds
from testbed.output.table import Advance

if TYPE_CHECKING:
    from collectives.simulation.closed_forms import Model
    from ddp import Profile, StepRun
    from ddp.simulation.step_model import StepModel
    from sim.topology import Topology
    from sim.topology.description import NetworkDescription
    from testbed.studies.carriers import Carrier


_NO_PROGRAM = "; which program NCCL runs is not known, so no ideal step is given"


@dataclass(frozen=True)
class Point:
    """One simulated step: *ideal*, where nothing but the network is counted, and as expected of a real run.

    Attributes:
        profile: name of what is computed.
        network: name of what it runs on.
        strategy: when buckets are launched.
        ranks: world size.
        step_seconds: of one iteration, ideally; None, as all that is ideal, where it is not known which
            program would run, but only what it takes.
        exposed_seconds: of it, in which communication keeps the compute waiting.
        efficiency: compute over iteration, ideally: 1 is perfect weak scaling.
        num_buckets: in which the gradients travel.
        engine: of the simulation.
        step_seconds_expected: of one iteration, with all that *expected* names.
        exposed_seconds_expected: of it, in which communication keeps the compute waiting.
        efficiency_expected: compute over the iteration that is expected.
        transport_model: of what is expected: the transport that a real run would use, or that was asked for.
        model: by which buckets are timed in what is expected: ``links`` or the name of a closed form.
        losses: terms that are counted in it besides (see `ddp.simulation.losses`).
        expected: all that is counted in it, in words.
        algorithm: of the all-reduce that was asked for, or goes by default.
        each_size_once: whether each size of bucket was simulated once, as a step has too many messages.
        scaling: ``weak``, where every rank computes what the profile says; or ``strong``, where all together
            compute what the fewest ranks do, and efficiency is against one rank that does it all.
    """

    profile: str
    network: str
    strategy: str
    ranks: int
    step_seconds: float | None
    exposed_seconds: float | None
    efficiency: float | None
    num_buckets: int
    engine: str
    step_seconds_expected: float
    exposed_seconds_expected: float
    efficiency_expected: float
    transport_model: str
    model: str
    losses: tuple[str, ...]
    expected: str
    scaling: str = "weak"
    algorithm: str = "ring"
    each_size_once: bool = False

    @property
    def counts(self) -> bool:
        """Whether anything besides the network is expected of a real run."""
        return self.transport_model != "ideal" or self.step_seconds_expected != self.step_seconds

    def against(self, ideal_ps: int, expected_ps: int) -> Point:
        """Return the point of strong scaling, where one rank that computes it all takes so long."""
        ideal = None if self.step_seconds is None else to_seconds(ideal_ps) / (self.ranks * self.step_seconds)
        return replace(
            self,
            efficiency=ideal,
            efficiency_expected=to_seconds(expected_ps) / (self.ranks * self.step_seconds_expected),
            scaling="strong",
        )

    @classmethod
    def of(
        cls,
        profile: str,
        network: str,
        strategy: str,
        ranks: int,
        ideal: StepRun | None,
        real: StepRun,
        asked: StepModel,
        model: StepModel,
        beyond: str = "",
        algorithm: str = "ring",
        each_size_once: bool = False,
    ) -> Point:
        """Return the point of a step, *ideal* and by *model*, which comes nearest to what is *asked*.

        *beyond* says, in words, how its buckets go beyond what the network was calibrated with.
        """
        return cls(
            profile=profile,
            network=network,
            strategy=strategy,
            ranks=ranks,
            step_seconds=None if ideal is None else ideal.seconds,
            exposed_seconds=None if ideal is None else ideal.exposed_seconds,
            efficiency=None if ideal is None else ideal.efficiency,
            num_buckets=real.num_buckets,
            engine=(ideal or real).engine,
            step_seconds_expected=real.seconds,
            exposed_seconds_expected=real.exposed_seconds,
            efficiency_expected=real.efficiency,
            transport_model=asked.transport.name,
            model=real.model,
            losses=real.losses,
            expected=model.in_words(real.losses) + ("" if ideal is not None else _NO_PROGRAM) + beyond,
            algorithm=algorithm,
            each_size_once=each_size_once,
        )


@dataclass(frozen=True)
class Scaling:
    """What was predicted, and from what.

    Attributes:
        points: in the order profile, network, strategy, ranks.
        topologies: digest of each topology, by ``network x ranks``.
        model: what the figures assume, in a sentence.
        carriers: what carries the buckets.
    """

    points: tuple[Point, ...]
    topologies: dict[str, str]
    model: str
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
    model: StepModel | None = None
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
    expected: Callable[[Topology], StepModel] | None = None,
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
        expected: what is counted on a topology besides the network; by default nothing.
        strong: whether the global batch is that of the fewest ranks, so that more of them compute less each;
            otherwise every rank computes what the profile says.
    """
    from collectives.catalogue.selectors import NATIVE
    from collectives.simulation import default_algorithm
    from ddp import simulate_step
    from ddp.simulation.step_model import IDEAL
    from testbed.studies.carriers import carriers_of
    from testbed.studies.step_models import (
        MAX_CALLED,
        MAX_FOLLOWED,
        MAX_LATE,
        as_native,
        going_on,
        ideal_step,
        messages_of_step,
        sends_awaited,
    )
    from testbed.truth.calibration.calibration import origin_of

    points: list[Point] = []
    topologies: dict[str, str] = {}
    fewest = min(ranks, default=1)
    setups: dict[tuple[int, int], _Setup] = {}
    for profile, network, strategy, num_ranks in product(profiles, networks, strategies, ranks):
        if (id(network), num_ranks) not in setups:
            setups[id(network), num_ranks] = _Setup(network, network.topology(num_ranks))
        setup = setups[id(network), num_ranks]
        topology = setup.topology
        own = algorithm or default_algorithm(topology)
        share = Fraction(fewest, num_ranks) if strong else Fraction(1)
        topologies[f"{network.name} x {num_ranks}"] = topology.digest()
        step = partial(
            simulate_step,
            profile.slowed(share),
            topology=topology,
            strategy=strategy,
            bucket_cap_mb=bucket_cap_mb,
            algorithm=own,
        )

        asked = model = IDEAL if expected is None else expected(topology)
        if own == NATIVE:
            asked = model = as_native(asked, num_ranks)
        num_messages = messages_of_step(profile, bucket_cap_mb, own, topology)
        once = num_messages > MAX_FOLLOWED
        ideal = ideal_step(partial(step, each_size_once=once), own, asked)
        if asked.model == "links" and asked.transport.progress == "calls" and num_messages > MAX_CALLED:
            model = going_on(asked)
        elif asked.transport.late_sends and ideal is not None and num_messages > MAX_LATE:
            model = sends_awaited(asked)
        alike = model.is_ideal and ideal is not None
        real = ideal if alike else step(each_size_once=once, **model.options())
        assert real is not None, "it is ideal, or simulated"

        beyond = ""
        if (origin := origin_of(network)) is not None and real.model == "links" and num_ranks > 1:
            sizes = origin.beyond(*(bucket.nbytes for bucket in real.buckets))
            beyond = f"; buckets are beyond what was measured: {sizes}" if sizes else ""
        point = Point.of(
            profile.name, network.name, strategy, num_ranks, ideal, real, asked, model, beyond, own, once
        )
        if strong:
            whole = partial(simulate_step, profile.slowed(Fraction(fewest)), topology=network.topology(1))
            alone = [whole(strategy=strategy, **one.options()).time_ps for one in (IDEAL, model)]
            point = point.against(*alone)
        points.append(point)
        setup.model = replace(model, model=cast("Model", real.model))
        setup.sizes |= {(run.collective, run.nbytes) for run in real.buckets if run.nbytes}
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

    once_said = (
        f"; where a step has more than {MAX_FOLLOWED:,} messages, each size of bucket is simulated once"
        if any(point.each_size_once for point in points)
        else ""
    )
    names = " or ".join(dict.fromkeys(point.algorithm for point in points))
    scaled = (
        f"strong scaling of the batch that {fewest} of the profile's ranks have" if strong else "weak scaling"
    )
    computes = f"every rank computes {'its share of what' if strong else 'as'} the profile says"
    model_in_words = (
        f"{scaled}; {names} all-reduce of {bucket_cap_mb:g} MiB buckets, launched by the reducer "
        f"that trains; {computes}; messages wait for latency, then share link "
        "bandwidth max-min; no protocol overhead, no cost of the reduction, no stragglers"
        f"{once_said}"
    )
    return Scaling(tuple(points), topologies, model_in_words, tuple(carriers))
