"""Timings of a collective, simulated or measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from collectives import NotExactError, Send, simulate
from collectives.catalogue.native import native_program
from collectives.catalogue.selectors import NCCL
from collectives.program import Algorithm
from collectives.timing.run import Run
from sim import Topology
from testbed.benchmarking.candidates import CONNECT, NATIVE, BenchRequest, Candidate, Refusal
from testbed.benchmarking.measure import Row, row, turns_of
from testbed.benchmarking.payload import ITEM_SIZES, Payload, size_of
from testbed.output.folder import Method
from testbed.output.table import Advance, counted, spell_size

MAX_MESSAGES = 500_000
"""Messages of one call up to which ``all`` simulates an algorithm one by one: some ten seconds."""

TOO_LONG = (
    "{0}'s messages share links and are too many to be simulated one by one quickly; to do it all the same, "
    "name it: --algorithm all,{0}"
)
STEPS_PER_MESSAGE = 10
"""How many steps of a rank take as long to simulate as a message, though it may have nothing to do."""


@dataclass(frozen=True)
class Timings:
    """Rows, and how they were got.

    Attributes:
        rows: a row per size and algorithm.
        method: how, in a word for each kind of figure.
        models: what the figures assume, in a sentence each.
        refusals: who was to be timed too, and is not.
        topologies: what was simulated.
    """

    rows: list[Row]
    method: list[Method]
    models: list[str]
    refusals: list[Refusal] = field(default_factory=list)
    topologies: list[Topology] = field(default_factory=list)


def spell(collective: str) -> str:
    """Return the name of *collective* as prose has it."""
    return collective.replace("_", "-")


def _subject(request: BenchRequest, rows: Sequence[Row]) -> str:
    """Return what was timed, in words."""
    timed = {row.algorithm for row in rows}
    names = [_spell_candidate(own, rows) for own in request.candidates if own.name in timed]
    by = ", ".join(names) if len(names) <= 3 else f"{len(names)} algorithms"
    return f"{spell(request.collective)} by {by}"


def _spell_candidate(candidate: Candidate, rows: Sequence[Row]) -> str:
    """Return what *candidate* is, with what `collectives.connect` has chosen at the sizes of *rows*."""
    if candidate.name != CONNECT:
        return str(candidate.algorithm or candidate.name)
    chosen = dict.fromkeys(str(row.chosen) for row in rows if row.algorithm == CONNECT)
    return f"connect()'s choice ({', '.join(chosen)})"


def simulate_rows(
    request: BenchRequest, topology: Topology, payload: bool, advance: Advance
) -> Iterator[Row | Refusal]:
    """Simulate each algorithm at each size on *topology*, size by size.

    With *payload*, rank threads in virtual time carry real tensors too, which are checked.  An
    algorithm that nobody has named is left out where its simulation would take very long.
    """
    left = list(request.candidates)
    for number, (count, nbytes) in enumerate(zip(request.counts, request.sizes, strict=True)):
        for place, candidate in enumerate(tuple(left)):
            done = number * len(request.candidates) + place
            advance(f"{spell_size(nbytes)}, {candidate.name}", completed=done)
            run = _simulate(candidate, request, nbytes, topology)
            if run is None:
                left.remove(candidate)
                yield Refusal(candidate.name, TOO_LONG.format(candidate.name))
                continue
            wrong = _wrong_in_virtual_time(request, candidate, count, topology) if payload else None
            more = {"engine": run.engine, "floor_us": run.floor_seconds * 1e6}
            chosen = run.algorithm if candidate.algorithm is None else None
            yield row(request, candidate.name, count, run.seconds, wrong, chosen=chosen, **more)


def _simulate(candidate: Candidate, request: BenchRequest, nbytes: int, topology: Topology) -> Run | None:
    """Return the run, or None if it would take too long for one that nobody has named."""
    algorithm = candidate.algorithm
    timed = partial(
        simulate,
        candidate.simulated_as,
        nbytes=nbytes,
        topology=topology,
        collective=request.collective,
        itemsize=ITEM_SIZES[request.dtype],
        assumptions=request.assumed,
    )
    if algorithm is None or candidate.asked_for:
        return timed()
    try:
        return timed(engine="makespan")
    except NotExactError:
        if _takes_long(algorithm, topology.num_ranks):
            return None
    return timed(engine="events")


def _takes_long(algorithm: Algorithm, world_size: int) -> bool:
    messages = steps = 0
    for rank in range(world_size):
        for step in algorithm.steps(rank, world_size):
            messages += sum(isinstance(operation, Send) for operation in step)
            steps += 1
        if messages + steps / STEPS_PER_MESSAGE > MAX_MESSAGES:
            return True
    return False


def _wrong_in_virtual_time(
    request: BenchRequest, candidate: Candidate, count: int, topology: Topology
) -> int:
    import torch
    import torch.distributed as dist

    from collectives.communicators.connection import connect
    from collectives.virtual import run

    choice = candidate.choice(request.collective)
    if candidate.name == NATIVE and request.assumed is not None and request.assumed.model == "library":
        choice = NCCL
    elif candidate.name == NATIVE:
        itemsize = ITEM_SIZES[request.dtype]
        nbytes = size_of(count, request.dtype, request.collective, request.num_ranks)
        choice = {request.collective: native_program(request.collective, request.num_ranks, nbytes, itemsize)}

    def check(rank: int) -> int:
        dist.init_process_group("testbed")
        dtype, world_size = getattr(torch, request.dtype), request.num_ranks
        payload = Payload(request.collective, count, dtype, rank=rank, world_size=world_size)
        return payload.count_wrong(connect(algorithm=choice))

    return sum(run(check, network=topology).results)


def simulated(
    request: BenchRequest, rows: list[Row], refusals: list[Refusal], topology: Topology, payload: bool
) -> Timings:
    """Return simulated *rows* with what they assume."""
    engines = sorted({str(row.engine) for row in rows}, reverse=True)
    ranks = counted(request.num_ranks, "rank")
    software = ""
    if (assumed := request.assumed) is not None:
        by_program = assumed.model in ("links", "library")
        named = [own.simulated_as if by_program else NATIVE for own in request.candidates]
        software = assumed.software.of_all(named).in_words()
    carried = "payload of integers checked on every rank" if payload else "sizes travel, no payload"
    model = (
        f"Simulated: {_subject(request, rows)} on {topology.name}, {ranks}, "
        f"{'engine' if len(engines) == 1 else 'engines'} {' and '.join(engines)}; latency, then link "
        f"bandwidth shared max-min; {software}; {carried}"
    )
    return Timings(rows, ["simulated"], [model], refusals, [topology])


def measured(request: BenchRequest, rows: list[Row], refusals: list[Refusal]) -> Timings:
    """Return measured *rows* with what they assume."""
    turns, ranks = turns_of(request.iterations), counted(request.num_ranks, "rank")
    alternately = ", the algorithms taking turns at each size" if len(request.candidates) > 1 else ""
    shared = ", tensors in memory that the ranks share" if request.registered else ""
    model = (
        f"Measured: {_subject(request, rows)} over {request.transport}, {ranks}{shared}; "
        f"{request.iterations} calls of the slowest rank, after {request.warmup}, in {turns} turns, of which "
        f"the mean call counts and the median turn{alternately}; "
        "payload of integers checked on every rank"
    )
    return Timings(rows, ["measured"], [model], refusals)
