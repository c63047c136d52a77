"""Validation on a shaped network: everything is predicted and written down first, and measured then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from benchmarks.lab.shaped import cases, steps
from benchmarks.lab.shaped.applied import applied_to
from benchmarks.lab.shaped.built import BuiltNetwork, built
from benchmarks.lab.shaped.cases import Case
from benchmarks.lab.shaped.hosts import HostError, Hosts, started
from benchmarks.lab.shaped.plan import plan, wire
from benchmarks.lab.shaped.prediction import Predictor
from benchmarks.lab.shaped.rows import Prediction, Row, digest, written
from benchmarks.lab.shaped.timing import Meanwhile, time_calls
from collectives.formats.whole_file import write_whole
from ddp.profiles.profile import Profile
from sim import Topology
from sim.scenario.conditions import LinkChange
from sim.topology.description import NetworkDescription
from testbed.calibration.live.calibration import Calibration
from testbed.output.table import Advance

SECONDS_A_PASS = 5.0
"""What all collectives of a file take at most each time, as foretold: decides how large they get."""
REPETITIONS = 5
STEPS = 6
CUT_SECONDS = 3.0
"""After so much silence a collective whose link is lost gives up."""


@dataclass(frozen=True)
class Cut:
    """A link that was lost in the middle of a collective.

    Attributes:
        case: in words.
        predicted: the links of which messages are lost, in words; None: none is.
        measured: what hosts that failed said, by host.
    """

    case: str
    predicted: str | None
    measured: Mapping[int, str]

    @property
    def holds(self) -> bool:
        """Whether it came as it was foretold."""
        return (self.predicted is not None) == bool(self.measured)


@dataclass(frozen=True)
class Validation:
    """What came of one network.

    Attributes:
        network: its name.
        topology: what was simulated.
        rows: of all cases.
        cut: of the case in which a link is lost.
        unbuilt: what the file states and the built network lacks, a sentence each.
        predictions: the SHA-256 of the file of predictions.
    """

    network: str
    topology: Topology
    rows: tuple[Row, ...]
    cut: Cut
    unbuilt: tuple[str, ...]
    predictions: str


def validate(
    network: NetworkDescription,
    calibration: Calibration,
    predictions_file: Path,
    advance: Advance,
) -> Validation:
    """Return what comes of *network*: predict it with *calibration* of another one, build and measure it.

    Args:
        network: whose rates and wiring are taken.
        calibration: whose shares and software costs are taken.
        predictions_file: where predictions are written down before anything is measured.
        advance: is told what is being done.

    Raises:
        NotSupportedError: the network cannot be built.
        UsageError: this process may not build networks.
        HostError: a host failed.
    """
    wires = wire(network)
    planned = plan(wires)
    predictor = Predictor(applied_to(wires, calibration), calibration)
    advance(f"{network.name}: predicting")
    chosen, large = _chosen(predictor, wires)
    cut = cases.cut(wires, large, predictor.total)
    model = steps.Model.for_rate(int(wires.link_bandwidth.min()))

    with ExitStack() as standing:
        stands = standing.enter_context(built(planned))
        advance(f"{network.name}: starting {planned.num_hosts} hosts")
        hosts = standing.enter_context(started(stands))
        profile = steps.record(hosts, model)
        of_cases = [list(_foretold(network.name, predictor, case)) for case in chosen]
        of_steps = [_step(network.name, reducer, model, profile, predictor) for reducer in steps.REDUCERS]
        foretold = [*chain.from_iterable(of_cases), *of_steps]
        write_whole(predictions_file, written(foretold))

        rows: list[Row] = []
        for case, predicted in zip(chosen, of_cases, strict=True):
            advance(f"{network.name}: {predicted[0].case}")
            taken = time_calls(hosts, case.calls, repetitions=REPETITIONS, meanwhile=_meanwhile(case, stands))
            rows += [Row.of(*pair) for pair in zip(predicted, taken, strict=True)]
        for reducer, expected in zip(steps.REDUCERS, of_steps, strict=True):
            advance(f"{network.name}: {expected.case}")
            rows.append(Row.of(expected, steps.time_steps(hosts, model, reducer, repetitions=STEPS)))
        return Validation(
            network.name,
            predictor.topology,
            tuple(rows),
            _cut(hosts, stands, cut, predictor),
            planned.unbuilt,
            digest(foretold),
        )


def _chosen(predictor: Predictor, wires: Topology) -> tuple[list[Case], int]:
    """Return the cases that there is time for, and the largest size among them."""
    num_hosts, kept = wires.num_ranks, {}

    def seconds(case: Case) -> float:
        if case not in kept:
            kept[case] = predictor.total(case)
        return kept[case]

    def choose(large: int) -> list[Case]:
        return [*cases.collectives(num_hosts, large), *cases.jobs(num_hosts, large)]

    large = cases.largest(choose, seconds, SECONDS_A_PASS)
    return [*choose(large), *cases.changes(wires, large, seconds)], large


def _foretold(network: str, predictor: Predictor, case: Case) -> Sequence[Prediction]:
    num_hosts = predictor.topology.num_ranks
    return [
        Prediction(
            network,
            case.family,
            name,
            call.collective,
            call.algorithm,
            call.nbytes,
            len(call.members) or num_hosts,
            seconds,
        )
        for name, call, seconds in zip(case.names(), case.calls, predictor.seconds(case), strict=True)
    ]


def _step(
    network: str, reducer: str, model: steps.Model, profile: Profile, predictor: Predictor
) -> Prediction:
    seconds = predictor.step(profile, reducer.split()[1], model.bucket_cap_mb)
    num_hosts = predictor.topology.num_ranks
    name = f"step, {reducer}"
    return Prediction(network, "step", name, "training_step", reducer, model.nbytes, num_hosts, seconds)


def _meanwhile(case: Case, stands: BuiltNetwork) -> Meanwhile | None:
    """Return what is done to the network while *case* runs."""
    change = case.change
    if change is None:
        return None
    link = stands.plan.link_of(change.link)
    after = change.at_ps / 1e12
    if isinstance(change, LinkChange):
        factor = float(change.exact_factor)
        return Meanwhile(after, lambda: stands.change(link, factor), lambda: stands.change(link, 1))
    return Meanwhile(after, lambda: stands.cut(link), _leave)


def _leave() -> None:
    """Nothing follows on a network of which a link has been cut."""


def _cut(hosts: Hosts, stands: BuiltNetwork, case: Case, predictor: Predictor) -> Cut:
    """Return how the hosts fail when a link is lost; no collective is possible after it."""
    (name,) = case.names()
    patient = tuple(replace(call, timeout=CUT_SECONDS) for call in case.calls)
    failed: Mapping[int, str] = {}
    try:
        time_calls(hosts, patient, repetitions=1, meanwhile=_meanwhile(case, stands))
    except HostError as error:
        failed = {host: said.splitlines()[0] for host, said in error.failed.items()}
    return Cut(name, predictor.failure(case), failed)
