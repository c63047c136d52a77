"""Runs of a script: each drawn from a seed, carried out with its faults and without, and judged."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from testbed.fuzzing.campaign import Judged, Tally
from testbed.fuzzing.draw import Draw, Space, draw
from testbed.fuzzing.faults import Calm
from testbed.fuzzing.oracles import ORACLES, Case
from testbed.fuzzing.reproduction import with_test
from testbed.fuzzing.shrinking import shrink, smaller_runs
from testbed.fuzzing.trial import MODULES, Trial, carry_out, models_left, topology_of

NEVER_RAN = "runs_without_faults"
"""What is violated by a script that fails where nothing happens to it."""


def judge(chosen: Draw, space: Space) -> Judged:
    """Carry *chosen* out, and the same without faults if that has not been; ask every oracle."""
    calm = _without_faults(chosen.without_faults, space)
    if calm.is_refusal:
        return Judged(chosen, {}, "refused", calm.message)
    if calm.error:
        return Judged(chosen, {NEVER_RAN: f"{calm.error}: {calm.message}"}, calm.error)
    trial = carry_out(chosen, space, calm_of(chosen, calm))
    case = Case(chosen, trial, calm)
    found = {oracle.__name__: wrong for oracle in ORACLES if (wrong := oracle(case))}
    return Judged(chosen, found, trial.error or "finished")


def judge_smaller(chosen: Draw, space: Space) -> Judged:
    """Judge *chosen*, but refuse arguments of its own with which the script fails by itself."""
    judged = judge(chosen, space)
    if chosen.argv is None or NEVER_RAN not in judged.violations:
        return judged
    return Judged(chosen, {}, "refused", judged.violations[NEVER_RAN])


def calm_of(chosen: Draw, trial: Trial) -> Calm:
    """Return what the faults of *chosen* need to know of the *trial* without them."""
    return Calm(topology_of(chosen), trial.time_ps, trial.iterations)


def _without_faults(calm: Draw, space: Space) -> Trial:
    """Return the trial of *calm*, or of one of other defaults of DDP if the script wraps nothing by it."""
    key = replace(calm, bucket_cap_mb=None, bucket_views=False, strategy=None), space
    if key not in _unwrapped:
        trial = _carried_out(calm, space)
        if trial.wraps:
            return trial
        if len(_unwrapped) >= _KEPT:
            _unwrapped.clear()
        _unwrapped[key] = trial
    return _unwrapped[key]


_KEPT = 512
_unwrapped: dict[tuple[Draw, Space], Trial] = {}


@functools.lru_cache(maxsize=_KEPT)
def _carried_out(calm: Draw, space: Space) -> Trial:
    return carry_out(calm, space)


@dataclass(frozen=True)
class Scripts:
    """Runs of a script, drawn from a *space*, as the subject of a campaign."""

    space: Space
    batch_size: int = 10
    modules: tuple[str, ...] = (__name__, *MODULES)

    def judge_batch(self, seeds: Sequence[int]) -> Tally:
        """Carry out and judge what *seeds* mean."""
        tally = Tally.of(judge(draw(seed, self.space), self.space) for seed in seeds)
        for seed in models_left():
            kept = {"no_memory_kept": "a model of it is still in memory when the run is over"}
            tally.violated.append(Judged(draw(seed, self.space), kept, "finished"))
        return tally

    def shrunk(self, judged: Judged) -> Judged:
        """Return the smallest violation found from *judged* on, with its test."""
        space, smallest = self.space, judged
        if judge(judged.draw, space).violations:
            candidates, again = partial(smaller_runs, space=space), partial(judge_smaller, space=space)
            smallest = shrink(judged, candidates, again, attempts=60)
        calm = _without_faults(smallest.draw.without_faults, space)
        conditions = smallest.draw.conditions(calm_of(smallest.draw, calm))
        script = space.script if space.is_module else str(Path(space.script).resolve())
        kept = {"argv": space.argv, "is_module": space.is_module}
        given = [repr(script), *(f"{name}={value!r}" for name, value in kept.items() if value)]
        judging = f"judge(draw, Space({', '.join(given)}))"
        return with_test(smallest, conditions, (draw.__module__, "Draw, Space"), (__name__, judging))
