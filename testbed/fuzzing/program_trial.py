"""Trials of programs: a draw, carried out with data, rank by rank; and what its collective demands."""

from __future__ import annotations

import functools
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np

from collectives import Algorithm
from collectives.catalogue.admission import checked
from collectives.execution.execute import execute
from collectives.execution.transport_model import transport_model
from collectives.program import Step
from collectives.program.chunking import Buffer, Chunking
from collectives.program.contracts import CONTRACTS, Place
from collectives.timing.floor import floor_ps
from collectives.timing.ranks.meeting_point import MeetingPoint
from collectives.timing.ranks.simulated_port import SimulatedPort
from collectives.virtual.faults import Faults, VirtualCondition
from sim.errors import LinkFailedError
from sim.scenario import Scenario
from sim.scenario.rank_overhead import RankOverhead
from sim.scenario.step_overheads import StepOverheads
from testbed.fuzzing.program_draw import ProgramDraw, algorithm_of, topology

_NEVER_WRITTEN = float("nan")


@dataclass(frozen=True)
class Ended:
    """How a run of programs ended.

    Attributes:
        error: what ended it; empty where nothing did.
        data: of each rank that came to its end, its buffer; None of one that did not.
        time_ps: when the last rank ended, in picoseconds.
    """

    error: str
    data: tuple[bytes | None, ...]
    time_ps: int


@functools.lru_cache(maxsize=1 << 14)
def floor_of(draw: ProgramDraw) -> int:
    """Return the floor of one of the collectives of *draw*, in picoseconds."""
    from_network = topology(draw.network, draw.ranks)
    return floor_ps(draw.collective, _num_elements(draw) * 4, from_network, _root(draw))


def _root(draw: ProgramDraw) -> int:
    root = algorithm_of(draw).parameters.get("root", 0)
    assert isinstance(root, int)
    return root


def _num_elements(draw: ProgramDraw) -> int:
    return draw.count * CONTRACTS[draw.collective].num_parts(draw.ranks)


@functools.lru_cache(maxsize=256)
def _numbers(ranks: int, elements: int) -> Any:
    """Return the numbers that ranks contribute, float32 of shape (ranks, elements)."""
    generator = np.random.Generator(np.random.SFC64([ranks, elements]))
    numbers = generator.standard_normal((ranks, elements)) * 10.0 ** generator.integers(-3, 4, (ranks, 1))
    return numbers.astype(np.float32)


@functools.lru_cache(maxsize=1 << 12)
def _layout(draw: ProgramDraw) -> tuple[Chunking, int]:
    """Return how the buffer is divided, and how many elements the scratch chunks have."""
    algorithm = algorithm_of(draw)
    chunking = Chunking.of(algorithm, draw.ranks, _num_elements(draw), 4)
    start, stop = chunking.span(chunking.num_chunks, algorithm.num_scratch_chunks(draw.ranks))
    return chunking, stop - start


class _Program:
    """The steps of every rank, made once; as much of an `Algorithm` as is needed to execute it."""

    def __init__(self, algorithm: Algorithm, ranks: int) -> None:
        algorithm = checked(algorithm)
        self._steps = [tuple(algorithm.steps(rank, ranks)) for rank in range(ranks)]

    def steps(self, rank: int, world_size: int) -> tuple[Step, ...]:
        """Return the steps of *rank*."""
        return self._steps[rank]


@functools.lru_cache(maxsize=1 << 12)
def _program(draw: ProgramDraw) -> Any:
    return _Program(algorithm_of(draw), draw.ranks)


@functools.lru_cache(maxsize=1 << 12)
def _given(draw: ProgramDraw) -> tuple[Any, ...]:
    """Return what each rank's buffer holds at first, as its collective says: NaN where that is nothing."""
    elements, (chunking, _) = _num_elements(draw), _layout(draw)
    before, numbers = CONTRACTS[draw.collective].before, _numbers(draw.ranks, elements)
    given = np.full((draw.ranks, elements), _NEVER_WRITTEN, dtype=np.float32)
    for rank in range(draw.ranks):
        for chunk in range(chunking.num_chunks):
            if before(Place(rank, chunk, draw.ranks, chunking.num_chunks, _root(draw))) is not None:
                start, stop = chunking.span(chunk)
                given[rank, start:stop] = numbers[rank, start:stop]
    return tuple(given)


def is_right(draw: ProgramDraw, rank: int, held: bytes | None) -> bool:
    """Return whether *rank* holds what its collective demands, up to rounding; once or again and again."""
    if draw.calls > 1:
        return True  # the second starts from what the first has left; judged beside the single one
    assert held is not None
    elements, (chunking, _) = _num_elements(draw), _layout(draw)
    after, numbers = CONTRACTS[draw.collective].after, _numbers(draw.ranks, elements).astype(np.float64)
    data = np.frombuffer(held, dtype=np.float32)
    for chunk in range(chunking.num_chunks):
        part = after(Place(rank, chunk, draw.ranks, chunking.num_chunks, _root(draw)))
        if part is None:
            continue
        start, stop = chunking.span(chunk)
        first = chunking.span(part.chunk)[0]
        summed = [other for other in range(draw.ranks) if part.ranks >> other & 1]
        wanted = numbers[summed, first : first + stop - start].sum(axis=0)
        scale = np.abs(numbers[summed, first : first + stop - start]).sum(axis=0)
        if not np.all(np.abs(data[start:stop] - wanted) <= 1e-5 * scale):
            return False
    return True


def carry_out_program(draw: ProgramDraw, conditions: Sequence[VirtualCondition]) -> Ended:
    """Return how the run of *draw* ends under *conditions*."""
    import simpy

    ranks_on = topology(draw.network, draw.ranks)
    faults = Faults.of(conditions, ranks_on)
    scenario = Scenario.of(ranks_on, faults.conditions)
    env = simpy.Environment(initial_time=0)
    network = scenario.network(env)
    overhead = scenario.rank_overhead(RankOverhead(), range(draw.ranks))
    meeting_point = MeetingPoint(
        network,
        rank_overhead=overhead,
        delay_ps=faults.delay_ps,
        transport_model=transport_model(draw.transport_model),
    )
    run = _Run(draw, meeting_point, overhead)
    for death in faults.deaths:
        assert death.at_ps is not None
        env.timeout(death.at_ps).callbacks.append(functools.partial(_kill, meeting_point, death.rank))
    order = list(range(draw.ranks))
    if draw.order is not None:
        Random(draw.order).shuffle(order)
    for rank in order:
        env.process(run.of(rank, scenario.delays_ps.get(rank, 0)))
    error = ""
    try:
        env.run()
    except LinkFailedError as failure:
        error = f"LinkFailedError: {failure}"
    return Ended(error, tuple(run.data), max(run.ended_ps))


def _kill(meeting_point: Any, rank: int, _: Any) -> None:
    meeting_point.remove(rank)


class _Run:
    """The ranks of one run, each a process of the engine.

    Args:
        draw: what they do.
        meeting_point: where they meet.
        overhead: of the ranks.
    """

    def __init__(self, draw: ProgramDraw, meeting_point: Any, overhead: Any) -> None:
        self.data: list[bytes | None] = [None] * draw.ranks
        self.ended_ps = [0] * draw.ranks
        calm = draw.plain
        self._program = _program(calm)
        self._given, self._chunking, self._scratch = _given(calm), *_layout(calm)
        self._draw = draw
        self._meeting_point = meeting_point
        quiet = not overhead
        self._overheads = [
            None if quiet else StepOverheads(overhead, draw.ranks, call) for call in range(draw.calls)
        ]

    def of(self, rank: int, late_ps: int) -> Generator[Any, Any, None]:
        """Yield what *rank* waits for, from its first step to its last."""
        env, draw = self._meeting_point.network.env, self._draw
        if late_ps:
            yield env.timeout(late_ps)
        data = self._given[rank].copy()
        port = SimulatedPort(self._meeting_point, rank)
        for call, overheads in enumerate(self._overheads):
            port.begin(draw.algorithm, overheads)
            scratch = np.empty(self._scratch, dtype=np.float32) if self._scratch else None
            buffer = Buffer(self._chunking, data, scratch)
            yield from execute(self._program, buffer, port, call)
        if rank not in self._meeting_point.dead:
            self.data[rank] = data.tobytes()
        self.ended_ps[rank] = int(env.now)
