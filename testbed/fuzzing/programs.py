"""Runs of programs, without a script: collectives with data on the engine that goes rank by rank.

A draw has one or two collectives, one after the other on each rank, on a network, with faults.  Its ranks
begin in an order that is drawn.  Data are random numbers whose sums depend on the order of addition, so what
changes nothing but time must leave the same bits, and those without faults are what the contract demands.
"""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any

import numpy as np

from collectives import Algorithm, NotSupportedError, ProgramError
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
from testbed.fuzzing.campaign import Judged, Tally
from testbed.fuzzing.draw import ProgramDraw, ProgramSpace, algorithm_of, draw_program, topology
from testbed.fuzzing.faults import Calm, condition_of
from testbed.fuzzing.shrinking import shrink, smaller_programs, with_test

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


@dataclass(frozen=True)
class Programs:
    """Runs of programs, drawn from a *space*, as the subject of a campaign."""

    space: ProgramSpace
    batch_size: int = 500
    modules: tuple[str, ...] = (__name__, carry_out_program.__module__)

    def judge_batch(self, seeds: Iterable[int]) -> Tally:
        """Carry out and judge what *seeds* mean."""
        with _collecting_once():
            return Tally.of(judge_program(draw_program(seed, self.space)) for seed in seeds)

    def shrunk(self, judged: Judged) -> Judged:
        """Return the smallest violation found from *judged* on, with its test."""
        smallest = shrink(judged, partial(smaller_programs, ranks=self.space.ranks), judge_program)
        draw = (draw_program.__module__, "ProgramDraw")
        return with_test(smallest, conditions_of(smallest.draw), draw, (__name__, "judge_program(draw)"))


@contextlib.contextmanager
def _collecting_once() -> Iterator[None]:
    """Leave garbage alone meanwhile: a run leaves little, and there is much to look through."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def judge_program(draw: ProgramDraw) -> Judged:
    """Carry *draw* out, and the same without faults if that has not been; ask what must hold."""
    try:
        calm = _without_faults(draw.plain)
    except NotSupportedError:
        return Judged(draw, {}, "refused", "programs that some numbers of ranks do not allow")
    if calm.error:
        return Judged(draw, {"runs_without_faults": calm.error}, "wrong")
    ended = carry_out_program(draw, conditions_of(draw))
    word = ended.error.partition(":")[0] or ("finished" if None not in ended.data else "waits for the dead")
    return Judged(draw, dict(_violations(draw, ended, calm)), word)


def conditions_of(draw: ProgramDraw) -> tuple[VirtualCondition, ...]:
    """Return the faults of *draw* as conditions; they come at shares of the time of its plain programs."""
    time_ps = _without_faults(draw.plain).time_ps
    return tuple(
        condition_of(fault, Calm(topology(draw.network, draw.ranks), time_ps, 0)) for fault in draw.faults
    )


def _violations(draw: ProgramDraw, ended: Ended, calm: Ended) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a run, by name of what should hold."""
    kinds = {fault.kind for fault in draw.faults}
    if ended.error and "cut" not in kinds:
        yield "no_error", ended.error
        return
    unfinished = [rank for rank, own in enumerate(ended.data) if own is None]
    if unfinished and not ended.error and "kill" not in kinds:
        yield "no_hang", f"ranks {unfinished} do not come to their end"
    wrong = [
        rank
        for rank, (own, other) in enumerate(zip(ended.data, calm.data, strict=True))
        if own is not None and own != other
    ]
    if wrong:
        yield "same_results", f"ranks {wrong} hold something else than without faults"
    floor_ps = floor_of(replace(draw.plain, network=draw.network))
    if not ended.error and not unfinished and ended.time_ps < floor_ps:
        yield "not_below_the_floor", f"{ended.time_ps} ps, with a floor of {floor_ps} ps"


@functools.lru_cache(maxsize=1 << 14)
def _without_faults(calm: ProgramDraw) -> Ended:
    """Return how plain programs end, held to the contract of their collective."""
    try:
        ended = carry_out_program(calm, ())
    except ProgramError as error:
        return Ended(str(error), (None,) * calm.ranks, 0)
    if ended.error:
        return ended
    if None in ended.data:
        return replace(ended, error=f"deadlock: {[own is not None for own in ended.data]} have finished")
    wrong = [rank for rank in range(calm.ranks) if not is_right(calm, rank, ended.data[rank])]
    return replace(ended, error=f"wrong result on ranks {wrong}") if wrong else ended
