"""Runs of programs, without a script: collectives with data on the engine that goes rank by rank.

A draw has one or two collectives, one after the other on each rank, on a network, with faults.  Its ranks
begin in an order that is drawn.  Data are random numbers whose sums depend on the order of addition, so what
changes nothing but time must leave the same bits.
"""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from collectives import NotSupportedError, ProgramError
from testbed.fuzzing.campaign import Judged, Tally
from testbed.fuzzing.faults import Calm, condition_of
from testbed.fuzzing.program_draw import ProgramDraw, ProgramSpace, draw_program, topology
from testbed.fuzzing.program_trial import Ended, carry_out_program, floor_of, is_right
from testbed.fuzzing.reproduction import with_test
from testbed.fuzzing.shrinking import shrink, smaller_programs

if TYPE_CHECKING:
    from collectives.virtual.faults import VirtualCondition


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
    return Judged(draw, dict(_violations(draw, ended, calm)), _word(ended))


def conditions_of(draw: ProgramDraw) -> tuple[VirtualCondition, ...]:
    """Return the faults of *draw* as conditions; they come at shares of the time of its plain programs."""
    time_ps = _without_faults(draw.plain).time_ps
    return tuple(
        condition_of(fault, Calm(topology(draw.network, draw.ranks), time_ps, 0)) for fault in draw.faults
    )


def _word(ended: Ended) -> str:
    if ended.error:
        return ended.error.partition(":")[0]
    return "finished" if None not in ended.data else "waits for the dead"


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
