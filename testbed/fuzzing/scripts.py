"""Runs of a script: each drawn from a seed, carried out with its faults and without, and judged."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from testbed.fuzzing.campaign import Batch, Judged
from testbed.fuzzing.draw import Draw, Space, draw
from testbed.fuzzing.faults import Calm
from testbed.fuzzing.oracles import ORACLES, Case
from testbed.fuzzing.trial import Trial, carry_out, models_left, topology_of

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


def conditions_of(chosen: Draw, space: Space) -> tuple[object, ...]:
    """Return the faults of *chosen* as conditions, for which the run without them is carried out."""
    return chosen.conditions(calm_of(chosen, _without_faults(chosen.without_faults, space)))


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


def judge_seeds(seeds: Iterable[int], space: Space) -> Batch:
    """Carry out and judge the runs that *seeds* mean in *space*."""
    endings: Counter[str] = Counter()
    violated: list[Judged] = []
    refusals: dict[str, None] = {}
    for seed in seeds:
        judged = judge(draw(seed, space), space)
        endings[judged.ended] += 1
        if judged.refusal:
            refusals.setdefault(judged.refusal)
        if judged.violations:
            violated.append(judged)
    for seed in models_left():
        kept = {"no_memory_kept": "a model of it is still in memory when the run is over"}
        violated.append(Judged(draw(seed, space), kept, "finished"))
    return Batch(endings, tuple(violated), tuple(refusals))
