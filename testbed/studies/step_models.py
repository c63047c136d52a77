"""Models of a step that can be afforded: of very many messages less is counted, which is said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from testbed.studies.carriers import MAX_MESSAGES as MAX_OF_A_ROW

if TYPE_CHECKING:
    from ddp import Profile, StepRun
    from ddp.simulation.step_model import StepModel
    from sim.topology import Topology

MAX_LATE = 10_000
"""Messages of a step beyond which late sends, which as a rule only rank by rank can follow, are awaited."""

OF_ANY = ("late",)
"""Terms of losses that apply to any network, over any transport."""

MAX_CALLED = 100_000
"""Messages of a step beyond which collectives that go on at their rank's calls go on by themselves."""

MAX_FOLLOWED = 1_000_000
"""Messages of a step beyond which each size of bucket is simulated once, alone on the idle network."""


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


def messages_of_step(profile: Profile, bucket_cap_mb: float, algorithm: str, topology: Topology) -> int:
    """Return about how many messages a step of *profile* has, in all-reduces by *algorithm*."""
    from ddp.reduction.bucketing import MIB

    cap = min(bucket_cap_mb * MIB, float(profile.nbytes or 1))
    num_buckets = min(len(profile.gradients), 1 + int(profile.nbytes / cap))
    return num_buckets * messages_of(algorithm, int(cap), topology)


def messages_of(algorithm: str, nbytes: int, topology: Topology) -> int:
    """Return the messages of an all-reduce of *nbytes* by *algorithm*; of too many to be counted a bound."""
    from collectives.catalogue.native import Native
    from collectives.catalogue.selectors import NATIVE
    from collectives.errors import NotExactError
    from collectives.models.cost import selector_on
    from collectives.program.rows import patterned_rows

    ours = algorithm != NATIVE
    selector = selector_on(topology, algorithm) if ours else Native(topology.num_ranks)
    chosen = selector.select("all_reduce", nbytes)
    assert chosen is not None, "native has been settled"
    try:
        rows = patterned_rows(chosen, topology.num_ranks, MAX_OF_A_ROW)
        return sum(len(pattern.source) for _, pattern in rows)
    except NotExactError:
        return MAX_OF_A_ROW


def sends_awaited(model: StepModel) -> StepModel:
    """Return *model* with a transport that awaits each step's sends, which all ranks at once can follow."""
    transport = model.transport
    name = f"{transport.name} with one bucket after another and each step's sends awaited"
    return replace(model, transport_model=replace(transport, name=name, late_sends=False))


def going_on(model: StepModel) -> StepModel:
    """Return *model*, of a transport that goes on at calls, with collectives that go on by themselves.

    Their sizes can be simulated once.  Losses stay those of a transport that goes on at calls.
    """
    from collectives.catalogue.native import by_itself

    transport = by_itself(sends_awaited(model).transport)
    name = f"{transport.name}, all going on by themselves"
    lost = [*model.losses]
    if "all" in lost:
        lost = [term for term in lost if term != "all"] + [
            term for term in OF_ANY if term not in model.losses
        ]
    return replace(model, transport_model=replace(transport, name=name), losses=tuple(lost))


def can_be_once(model: StepModel) -> bool:
    """Return whether each size of bucket can be simulated once: what it takes does not depend on calls."""
    return model.model != "links" or model.transport.progress == "itself"
