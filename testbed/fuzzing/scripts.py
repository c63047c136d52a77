"""Runs of a script: each drawn from a seed, carried out with its faults and without, and judged by oracles.

An oracle says what must hold of a trial beside the same run without faults: it is a function that returns in
words what is wrong, or nothing.  `ORACLES` lists them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from testbed.fuzzing.campaign import Judged, Tally
from testbed.fuzzing.draw import Draw, Space, draw, topology
from testbed.fuzzing.faults import Calm
from testbed.fuzzing.shrinking import shrink, smaller_runs, with_test
from testbed.fuzzing.trial import MODULES, Trial, carry_out, models_left

_INSIDES = ("AssertionError", "AttributeError", "IndexError", "KeyError", "TypeError")
_ENDS_OF_FAULTS = ("RankError", "DeadlockError", "LinkFailedError")

NEVER_RAN = "runs_without_faults"
"""What is violated by a script that fails where nothing happens to it."""
_KEPT = 512
_unwrapped: dict[tuple[Draw, Space], Trial] = {}


@dataclass(frozen=True)
class Case:
    """A trial, and beside it what it is held to.

    Attributes:
        draw: what was carried out.
        trial: how it ended.
        calm: how the same run ended without faults.
    """

    draw: Draw
    trial: Trial
    calm: Trial


Oracle = Callable[[Case], str]


def no_hang(case: Case) -> str:
    """No run goes on for ever."""
    return case.trial.message if case.trial.error == "Hang" else ""


def no_error_of_ours(case: Case) -> str:
    """What ends a run is an error of the script, or a verdict; nothing else comes out of the run."""
    if case.trial.error in ("", "Hang", *_ENDS_OF_FAULTS):
        return ""
    return f"{case.trial.error}: {case.trial.message}"


def time_changes_no_results(case: Case) -> str:
    """Faults that change nothing but time and order lead to the same results, bit for bit."""
    if not case.draw.only_time:
        return ""
    if case.trial.error:
        return f"ends in an error, though only time and order were changed: {case.trial.message}"
    return difference(case.trial, case.calm)


def equal_or_an_error(case: Case) -> str:
    """Any other fault leads to the same results, or to an error."""
    if case.draw.only_time or case.trial.error:
        return ""
    return difference(case.trial, case.calm)


def exceptions_keep_their_rank(case: Case) -> str:
    """An exception that was injected comes out as itself, from the rank on which it was raised."""
    trial = case.trial
    if trial.cause != "InjectedError":
        return ""
    ranks = {fault.rank for fault in case.draw.faults if fault.kind in ("exception", "hook")}
    return "" if trial.rank in ranks else f"InjectedError on rank {trial.rank}, injected on {sorted(ranks)}"


def no_error_of_the_insides(case: Case) -> str:
    """What a rank meets when others fail is an error of communication, not one of our insides."""
    aborts = any(fault.kind == "abort" for fault in case.draw.faults)
    if case.trial.cause in _INSIDES and not aborts:
        return f"rank {case.trial.rank}: {case.trial.message}"
    return ""


def culprit_is_named(case: Case) -> str:
    """A deadlock that a death alone can have caused says which rank was killed."""
    trial = case.trial
    if trial.error != "DeadlockError":
        return ""
    if any(not fault.only_time and fault.kind != "kill" for fault in case.draw.faults):
        return ""
    killed = [fault.rank for fault in case.draw.faults if fault.kind == "kill"]
    if killed and all(f"rank {rank}: was killed" not in trial.message for rank in killed):
        return f"a deadlock, and nobody is named who was killed: {trial.message}"
    return ""


def nothing_left(case: Case) -> str:
    """A run leaves nothing behind that the same run without faults does not."""
    left, before = case.trial.leftover, case.calm.leftover
    dead = any(fault.kind == "kill" for fault in case.draw.faults)
    return "" if case.trial.error or dead or len(left) <= len(before) else f"left behind: {'; '.join(left)}"


def no_link_above_capacity(case: Case) -> str:
    """No link carries more than it can."""
    return f"a link is used to {case.trial.utilisation:.4f}" if case.trial.utilisation > 1 + 1e-9 else ""


ORACLES: tuple[Oracle, ...] = (
    no_hang,
    no_error_of_ours,
    time_changes_no_results,
    equal_or_an_error,
    exceptions_keep_their_rank,
    no_error_of_the_insides,
    culprit_is_named,
    nothing_left,
    no_link_above_capacity,
)
"""All of them, in the order in which they are asked."""


def difference(trial: Trial, calm: Trial) -> str:
    """Return in words where two runs that came to their ends differ; nothing if they do not."""
    for rank, (lines, others) in enumerate(zip(trial.output, calm.output, strict=True)):
        if trial.values[rank] and lines != others:
            pairs = zip([*lines, None], [*others, None], strict=False)
            own, other = next((pair for pair in pairs if pair[0] != pair[1]), (None, None))
            return f"rank {rank} printed {own!r}, without faults {other!r}"
    for rank, (value, other) in enumerate(zip(trial.values, calm.values, strict=True)):
        if value and value != other:
            return f"rank {rank} computed something else than without faults"
    return ""


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
    return Calm(topology(chosen.network, chosen.ranks), trial.time_ps, trial.iterations)


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
