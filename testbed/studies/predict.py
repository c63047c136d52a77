"""Scaling of training steps: the reducer that trains, replayed on networks of many sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

from sim.units import to_seconds
from testbed.output.table import Advance

if TYPE_CHECKING:
    from ddp import Profile, StepRun
    from ddp.simulation.step_model import StepModel
    from sim.topology import Topology
    from sim.topology.description import NetworkDescription


MAX_MESSAGES = 10_000
"""Messages of a step beyond which late sends, which as a rule only rank by rank can follow, are awaited."""


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
        )


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
        algorithm: of the all-reduce.
        advance: is told of every step.
        expected: what is counted on a topology besides the network; by default nothing.
        strong: whether the global batch is that of the fewest ranks, so that more of them compute less each;
            otherwise every rank computes what the profile says.
    """
    from collectives.catalogue.selectors import NATIVE
    from ddp import simulate_step
    from ddp.simulation.step_model import IDEAL
    from testbed.truth.calibration.calibration import origin_of

    points: list[Point] = []
    topologies: dict[str, str] = {}
    fewest = min(ranks, default=1)
    for profile, network, strategy, num_ranks in product(profiles, networks, strategies, ranks):
        topology = network.topology(num_ranks)
        share = Fraction(fewest, num_ranks) if strong else Fraction(1)
        topologies[f"{network.name} x {num_ranks}"] = topology.digest()
        step = partial(
            simulate_step,
            profile.slowed(share),
            topology=topology,
            strategy=strategy,
            bucket_cap_mb=bucket_cap_mb,
            algorithm=algorithm,
        )

        asked = model = IDEAL if expected is None else expected(topology)
        if algorithm == NATIVE:
            asked = model = as_native(asked, num_ranks)
        ideal = ideal_step(step, algorithm, asked)
        if asked.transport.late_sends and ideal is not None:
            num_messages = len(ideal.buckets) * messages_of(algorithm, topology)
            model = asked if num_messages <= MAX_MESSAGES else sends_awaited(asked)
        real = ideal if model.is_ideal and ideal is not None else step(**model.options())

        beyond = ""
        if (origin := origin_of(network)) is not None and real.model == "links" and num_ranks > 1:
            sizes = origin.beyond(*(bucket.nbytes for bucket in real.buckets))
            beyond = f"; buckets are beyond what was measured: {sizes}" if sizes else ""
        point = Point.of(profile.name, network.name, strategy, num_ranks, ideal, real, asked, model, beyond)
        if strong:
            whole = partial(simulate_step, profile.slowed(Fraction(fewest)), topology=network.topology(1))
            alone = [whole(strategy=strategy, **own.options()).time_ps for own in (IDEAL, model)]
            point = point.against(*alone)
        points.append(point)
        advance(f"{profile.name} on {network.name}, {num_ranks} ranks")

    scaled = (
        f"strong scaling of the batch that {fewest} of the profile's ranks have" if strong else "weak scaling"
    )
    computes = f"every rank computes {'its share of what' if strong else 'as'} the profile says"
    model_in_words = (
        f"{scaled}; {algorithm} all-reduce of {bucket_cap_mb:g} MiB buckets, launched by the reducer "
        f"that trains; {computes}; messages wait for latency, then share link "
        "bandwidth max-min; no protocol overhead, no cost of the reduction, no stragglers"
    )
    return Scaling(tuple(points), topologies, model_in_words)


def as_native(model: StepModel, num_ranks: int) -> StepModel:
    """Return *model* for what the vendor runs: over NCCL by its closed form, unless losses take its rate."""
    takes_rate = num_ranks > 1 and bool({"all", "rate"} & {*model.losses})
    if model.model != "links" or model.transport.name != "nccl" or takes_rate:
        return model
    return replace(model, model="nccl")


def ideal_step(step: Callable[..., StepRun], algorithm: str, asked: StepModel) -> StepRun | None:
    """Return *step* with nothing but the network; None where it is not known what program *asked* runs.

    Of Gloo's own programs each step's sends are awaited then, and they go on by themselves, as ideally ours.

    Raises:
        NotSupportedError: it is known neither what runs nor what that takes.
    """
    from collectives.catalogue.native import native_over
    from collectives.catalogue.selectors import NATIVE
    from ddp.simulation.step_model import IDEAL

    if algorithm != NATIVE:
        return step()
    if asked.model != "links" or asked.transport.name == "nccl":
        return None
    native_over(asked.transport, num_ranks=1)
    name = f"{asked.transport.name} with each step's sends awaited"
    return step(transport_model=replace(IDEAL.transport, name=name))


def messages_of(algorithm: str, topology: Topology) -> int:
    """Return the messages of an all-reduce by *algorithm*, of a bucket of torch's size where it matters."""
    from collectives.catalogue.native import Native
    from collectives.catalogue.selectors import NATIVE
    from collectives.models.cost import selector_on
    from collectives.program.rows import patterned_rows

    ours = algorithm != NATIVE
    selector = selector_on(topology, algorithm) if ours else Native(topology.num_ranks)
    chosen = selector.select("all_reduce", 25 * 2**20)
    assert chosen is not None, "native has been settled"
    return sum(len(pattern.source) for _, pattern in patterned_rows(chosen, topology.num_ranks))


def sends_awaited(model: StepModel) -> StepModel:
    """Return *model* with a transport that awaits each step's sends, which all ranks at once can follow."""
    transport = model.transport
    name = f"{transport.name} with one bucket after another and each step's sends awaited"
    return replace(model, transport_model=replace(transport, name=name, late_sends=False))
