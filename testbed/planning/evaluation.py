"""Evaluation of points in virtual time: a training step by the reducer that trains, a collective, a script.

    timing = links    programs on links
    timing = library  what NCCL runs takes what was measured of it, where the network's file says that, else
                      what NCCL expects of itself

The default algorithm, and all that is counted besides the network, are those of a real run
(`collectives.timing.assumptions`), as of any other command.  The fullest link is that of the
largest bucket, alone.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

from collectives import Job, NotExactError, simulate
from collectives.catalogue.selectors import NATIVE, NCCL, is_one_kernel, parse_auto
from collectives.errors import CollectiveError, NotSupportedError
from collectives.timing import Assumptions, default_algorithm, plan
from collectives.timing.cost import selector_on
from collectives.timing.formulas.nccl.model import predict_on
from collectives.timing.links import Links, Traffic
from ddp import Profile, StepRun, simulate_step
from ddp.profiles import load_profile
from ddp.reduction.overlap import resolve_strategy
from ddp.reduction.strategies.fsdp import Fsdp
from ddp.step.communication import WHOLE, FormulaParts
from sim.scenario import Scenario
from sim.scenario.rank_overhead import RankOverhead
from sim.topology import Topology
from sim.units import to_seconds
from testbed.calibration.confidence import as_fields, interval_of_run, interval_of_step
from testbed.calibration.live.calibration import origin_of
from testbed.planning.alteration import AS_IT_IS, Alteration
from testbed.planning.opened import content_digest, note
from testbed.planning.points import Point, Settings, description_of
from testbed.planning.question import DEFAULT
from testbed.planning.row import Row

AUTO = "auto"
"""Of transports: as over what would really run."""

MAX_FOLLOWED = 100_000
"""Messages of an all-reduce that are followed one by one, to say how full its fullest link is."""


def evaluate(point: Point, altered: Alteration = AS_IT_IS) -> Row:
    """Return what *point* comes to, with something *altered*.

    What does not apply to it, such as an algorithm that refuses so many ranks, is the row's problem.

    Raises:
        NetworkFileError, ProfileError, UnknownAlgorithmError, UnknownStrategyError: an input that is wrong
            wherever it stands.
    """
    note(point.network)
    topology = topology_at(point)
    try:
        if point.kind == "collective":
            return _collective(point, topology, altered)
        if point.kind == "script":
            from testbed.planning.scripts import evaluate_script

            return evaluate_script(point, _altered_topology(topology, altered), assumed_at(point, topology))
        return _step(point, topology, altered)
    except NotSupportedError as error:
        return Row(point, problem=str(error), topology=topology.digest())


def topology_at(point: Point) -> Topology:
    """Return the network of *point*, of its size."""
    file = content_digest(point.network)
    return _topology(point.network, point.overrides, point.ranks, point.ideal, file)


def algorithm_of(point: Point, topology: Topology) -> str:
    """Return the algorithm of *point* as the simulation knows it."""
    return default_algorithm(topology) if point.algorithm == DEFAULT else point.algorithm


def assumed_at(point: Point, topology: Topology) -> Assumptions:
    """Return what is assumed at *point*, on its network as it is."""
    on_gpu = point.kind == "step" and isinstance(resolve_strategy(point.strategy), Fsdp)
    counted: dict[str, Any] = {
        "model": point.timing,
        "transport_model": None if point.transport == AUTO else point.transport,
        "inefficiencies": point.inefficiencies,
        "device": point.device,
        **dict(point.software),
    }
    given = Assumptions.ideal() if point.ideal else None
    return Assumptions.on(topology, point.network, given, counted, on_gpu=on_gpu)


def _altered(point: Point, usual: Topology, altered: Alteration) -> tuple[Topology, FormulaParts]:
    """Return the network as it is otherwise, or where a closed form is evaluated, its parts."""
    if point.timing != "links":
        return usual, altered.of_formula()
    return _altered_topology(usual, altered), WHOLE


def _step(point: Point, usual: Topology, altered: Alteration) -> Row:
    """Return a step, with the algorithms that are chosen on the *usual* network."""
    own = altered.of_profile(load_profile(point.model))
    assumed = assumed_at(point, usual)
    assumed = assumed.with_(inefficiencies=altered.of_inefficiencies(assumed.software.inefficiencies))
    topology, parts = _altered(point, usual, altered)
    algorithm: Any = algorithm_of(point, usual)
    if is_one_kernel(algorithm):
        assumed = replace(assumed, software=assumed.software.in_one_kernel())
    if topology is not usual and algorithm != NATIVE:  # which depends on no link
        algorithm = selector_on(usual, algorithm, None, assumed.software.rank_overhead())

    def step(profile: Profile, topology: Topology) -> StepRun:
        return simulate_step(
            profile,
            topology=topology,
            strategy=point.strategy,
            bucket_cap_mb=point.bucket_cap_mb,
            algorithm=algorithm,
            assumptions=assumed,
            parts=parts,
        )

    if point.fewest:
        run = step(own.slowed(Fraction(point.fewest, point.ranks)), topology)
        whole = step(own.slowed(Fraction(point.fewest)), topology_at(replace(point, ranks=1)))
        alone, efficiency = whole.seconds / point.ranks, whole.seconds / (point.ranks * run.seconds)
    else:
        run = step(own, topology)
        alone, efficiency = run.efficiency * run.seconds, run.efficiency
    largest = max((bucket.nbytes for bucket in run.buckets), default=0)
    overhead = assumed.software.rank_overhead()
    chosen, resolved = _chosen(point, usual, "all_reduce", largest, run.model, overhead)
    looked_for = point.finds_link and point.ranks > 1 and altered == AS_IT_IS
    link = _fullest(topology, resolved, largest) if looked_for else None
    return Row(
        point,
        seconds=run.seconds,
        compute_seconds=alone,
        efficiency=efficiency,
        algorithm=chosen,
        resolved=resolved if run.model == "links" else DEFAULT,
        bottleneck=None if link is None else link[0],
        bottleneck_utilisation=None if link is None else link[1],
        method="simulated" if run.model == "links" else "closed form",
        timed_by=run.model,
        inefficiencies=run.inefficiencies,
        topology=topology.digest(),
        profile=own.name,
        exposed_seconds=run.exposed_seconds,
        num_buckets=run.num_buckets,
        engine=run.engine,
        transport_model=run.transport_model,
        assumed=_in_words(point, assumed, run),
        each_size_once=run.each_size_once,
        buckets=tuple(sorted({(bucket.collective, bucket.nbytes) for bucket in run.buckets})),
        **as_fields(interval_of_step(run.seconds, run.compute_seconds, assumed, usual)),
    )


def _in_words(point: Point, assumed: Assumptions, run: StepRun) -> str:
    """Return what was counted besides the network, and whether buckets are beyond its calibration."""
    words = run.in_words(assumed)
    origin = origin_of(description_of(point.network, point.overrides))
    if origin is None or run.model != "links" or point.ranks == 1:
        return words
    sizes = origin.beyond(*(bucket.nbytes for bucket in run.buckets))
    return f"{words}; buckets are beyond what was measured: {sizes}" if sizes else words


def _collective(point: Point, usual: Topology, altered: Alteration) -> Row:
    topology, parts = _altered(point, usual, altered)
    run = simulate(
        algorithm_of(point, usual),
        nbytes=point.nbytes,
        topology=topology,
        collective=point.model,
        assumptions=assumed_at(point, usual),
    )
    overhead = assumed_at(point, usual).software.rank_overhead()
    chosen, resolved = run.algorithm, run.algorithm
    if point.ranks == 1 or run.model != "links" or not run.algorithm:
        chosen, resolved = _chosen(point, topology, point.model, point.nbytes, run.model, overhead)
    busiest = run.links.bottleneck if run.engine != "closed form" else None
    seconds = to_seconds(parts.of(run))
    return Row(
        point,
        seconds=seconds,
        efficiency=run.floor_seconds / seconds if seconds else None,
        algorithm=chosen,
        resolved=resolved if run.model == "links" else DEFAULT,
        bottleneck=None if busiest is None else busiest.name,
        bottleneck_utilisation=None if busiest is None else busiest.utilisation,
        method="simulated" if run.model == "links" else "closed form",
        timed_by=run.model,
        topology=topology.digest(),
        **as_fields(interval_of_run(run, assumed_at(point, usual))),
    )


def _chosen(
    point: Point, topology: Topology, collective: str, nbytes: int, model: str, rank_overhead: RankOverhead
) -> tuple[str, str]:
    """Return what has run for people, and the name under which it runs again on links."""
    if point.ranks == 1:
        return "none", DEFAULT
    resolved = algorithm_of(point, topology)
    if resolved == NCCL or (resolved != NATIVE and parse_auto(resolved) is not None):
        resolved = str(selector_on(topology, resolved, None, rank_overhead).select(collective, nbytes))
    if model == "links":
        return resolved, resolved
    try:
        expected = predict_on(topology, range(topology.num_ranks), collective, nbytes)
    except CollectiveError:
        return "NCCL's", resolved
    return f"NCCL {expected.algorithm}/{expected.protocol}", resolved


@lru_cache(maxsize=1024)
def _fullest(topology: Topology, algorithm: str, nbytes: int) -> tuple[str, float | None] | None:
    """Return the fullest link of an all-reduce, and how full it is; a topology is compared by identity.

    How full is None where it would take minutes to find out, of very many messages that fall out of step.
    """
    try:
        try:
            links = simulate(algorithm, nbytes=nbytes, topology=topology, engine="makespan").links
        except NotExactError:
            traffic = Traffic.of(plan(Job(algorithm, nbytes), Scenario.of(topology, ())))
            if traffic.num_messages > MAX_FOLLOWED:
                link = Links(topology, traffic.link_bytes, 1).bottleneck
                return None if link is None else (link.name, None)
            links = simulate(algorithm, nbytes=nbytes, topology=topology, engine="events").links
    except NotSupportedError:
        return None
    link = links.bottleneck
    return None if link is None else (link.name, link.utilisation)


@lru_cache(maxsize=64)
def _topology(network: str, overrides: Settings, ranks: int, ideal: bool, file: str) -> Topology:
    """Return the network; *file* is a digest of its file, which may change while this process lives.

    On an *ideal* network nothing is lost in ports.
    """
    description = description_of(network, overrides)
    if ideal:
        description = description.without_fabric()
    return description.topology(ranks)


@lru_cache(maxsize=64)  # one for all points of a task, which then share what is known of it
def _altered_topology(usual: Topology, altered: Alteration) -> Topology:
    return altered.of_topology(usual)
