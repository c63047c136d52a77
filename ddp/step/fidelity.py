"""Fidelity of a simulated step: of very many messages less is counted, and the result says so.

    messages of a step   of which kind                             are simulated with
    over 10,000          sends that are awaited late               each step's sends awaited
    over 100,000         collectives that go on at rank's calls    collectives that go on by themselves
    over 1,000,000       any                                       each size of bucket once, alone
    over 10,000          any that are followed one by one, as      powers of two bytes once, alone, and a line
                         they meet otherwise than in step          between them

A step of fewer messages is exact.  So is one with conditions, and one of which an engine is asked for by
name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from collectives.catalogue.native import Native, by_itself
from collectives.catalogue.selectors import NATIVE, Selector
from collectives.errors import NotExactError
from collectives.execution.transport_model import TransportModel
from collectives.program.program_key import ProgramKey
from collectives.timing import Assumptions
from collectives.timing.closed_forms import closed_form_of
from collectives.timing.cost import selector_on
from collectives.timing.rows.pattern import patterned_rows

if TYPE_CHECKING:
    from ddp.step.communication import Choice
    from sim.scenario.rank_overhead import RankOverhead
    from sim.topology import Topology

MAX_LATE = 10_000
"""Messages of a step beyond which late sends, which as a rule only rank by rank can follow, are awaited."""

MAX_CALLED = 100_000
"""Messages of a step beyond which collectives that go on at their rank's calls go on by themselves."""

MAX_FOLLOWED = 1_000_000
"""Messages of a step beyond which each size of bucket is simulated once, alone on the idle network."""

MAX_ONE_BY_ONE = 10_000
"""Messages of a step beyond which, where each is followed by itself, powers of two are simulated once."""

MAX_OF_A_ROW = 250_000
"""Messages of one step of all ranks up to which they are counted; else they are taken to be so many."""


@dataclass(frozen=True)
class Fidelity:
    """What of a step is simulated.

    Attributes:
        assumed: what is counted.
        each_size_once: whether each size is simulated once, alone on the idle network.
        on_lines: whether only powers of two are, and sizes between them are on the line through these.
    """

    assumed: Assumptions
    each_size_once: bool = False
    on_lines: bool = False


def messages_in(
    assumed: Assumptions, algorithm: Choice, buckets: Iterable[tuple[str, int]], topology: Topology
) -> int:
    """Return the messages of a step; none by a closed form, or of one rank.

    Args:
        assumed: what was asked for.
        algorithm: of all-reduce.
        buckets: the collectives of the step, each with the bytes of its buffer.
        topology: the network.
    """
    if closed_form_of(algorithm, assumed.model) is not None or topology.num_ranks == 1:
        return 0
    rank_overhead = assumed.software.rank_overhead()
    return sum(
        times * messages_of(algorithm, collective, nbytes, topology, rank_overhead)
        for (collective, nbytes), times in Counter(buckets).items()
    )


def affordable(assumed: Assumptions, num_messages: int, *, one_by_one: bool) -> Fidelity:
    """Return what is simulated of *assumed* in a step of so many messages, followed *one_by_one* or not."""
    transport = assumed.software.transport
    on_lines = one_by_one and num_messages > MAX_ONE_BY_ONE
    if transport.progress == "calls" and (num_messages > MAX_CALLED or on_lines):
        assumed = assumed.with_(transport_model=_going_on(transport))
    elif transport.late_sends and num_messages > MAX_LATE:
        assumed = assumed.with_(transport_model=_sends_awaited(transport))
    return Fidelity(assumed, num_messages > MAX_FOLLOWED or on_lines, on_lines)


def messages_of(
    algorithm: Choice, collective: str, nbytes: int, topology: Topology, rank_overhead: RankOverhead
) -> int:
    """Return the messages of a collective of *nbytes*; of too many to be counted a bound."""
    if algorithm == NATIVE:
        selector: Selector = Native(topology.num_ranks)
    elif isinstance(algorithm, Selector):
        selector = algorithm
    else:
        selector = selector_on(topology, algorithm, None, rank_overhead)
    chosen = selector.select(collective, nbytes)
    assert chosen is not None, "native has been settled"
    return _messages_sent(ProgramKey.of(chosen), topology.num_ranks)


@lru_cache(maxsize=4096)  # for steps of other buckets and strategies, too
def _messages_sent(program: ProgramKey, num_ranks: int) -> int:
    """Return how many messages *program* sends; of too many to be counted a bound."""
    try:
        rows = patterned_rows(program.algorithm, num_ranks, MAX_OF_A_ROW)
        return sum(len(pattern.source) for _, pattern in rows)
    except NotExactError:
        return MAX_OF_A_ROW


def _sends_awaited(transport: TransportModel) -> TransportModel:
    """Return *transport* with each step's sends awaited, which all ranks at once can follow."""
    name = f"{transport.name} with one bucket after another and each step's sends awaited"
    return replace(transport, name=name, late_sends=False)


def _going_on(transport: TransportModel) -> TransportModel:
    """Return *transport*, which goes on at calls, with collectives that go on by themselves."""
    going = by_itself(_sends_awaited(transport))
    return replace(going, name=f"{going.name}, all going on by themselves")
