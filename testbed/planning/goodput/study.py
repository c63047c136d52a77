"""Goodput of a training: expected, between which bounds a run lies, and what would help."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from testbed.output.folder import Method
from testbed.planning.goodput.losses import USEFUL, Run, best_interval, expected
from testbed.planning.goodput.policy import RESTARTS, Checkpoint, Part, Setting

RUNS = 40
"""Runs of which the bounds are taken, each with a seed of its own."""
_TENTH = RUNS // 20


@dataclass(frozen=True)
class Goodput:
    """A training of so many seconds in a *setting*.

    Attributes:
        setting: what is run.
        seconds: of the whole run.
        seed: of the first of `RUNS`.
    """

    setting: Setting
    seconds: float
    seed: int = 0

    @cached_property
    def runs(self) -> list[Run]:
        """Runs with failures from `RUNS` seeds."""
        return [Run(self.setting, self.seconds, self.seed + number) for number in range(RUNS)]

    @property
    def method(self) -> Method:
        """How `fraction` and `lost` were got."""
        return "closed form" if self.setting.has_closed_form else "simulated"

    @cached_property
    def fraction(self) -> float:
        """The part of the time that counts."""
        if self.setting.has_closed_form:
            return expected(self.setting).goodput
        return statistics.fmean(run.goodput for run in self.runs)

    @property
    def bounds(self) -> tuple[float, float]:
        """Between which nine of ten runs lie."""
        found = sorted(run.goodput for run in self.runs)
        return found[_TENTH], found[-1 - _TENTH]

    @property
    def interruptions(self) -> float:
        """Failures in the whole run, on average."""
        return self.setting.rate * self.seconds

    @cached_property
    def lost(self) -> dict[str, float]:
        """Seconds of the run that do not count, by cause; most first."""
        if self.setting.has_closed_form:
            found = {cause: part * self.seconds for cause, part in expected(self.setting).lost.items()}
        else:
            causes = {cause for run in self.runs for cause in run.spent} - {USEFUL}
            found = {
                cause: statistics.fmean(run.spent.get(cause, 0.0) for run in self.runs) for cause in causes
            }
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))

    def failures(self) -> dict[str, float]:
        """Return failures in the whole run, by part, on average; most first."""
        found = {part.name: part.rate * self.seconds for part in self.setting.parts}
        return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))

    def alternatives(self) -> Iterator[tuple[str, Goodput]]:
        """Yield what would be bought, and the goodput with it, each at its best interval."""
        setting, checkpoint = self.setting, self.setting.checkpoint
        yield (
            "restarts in half the time",
            self._with(replace(setting, restart_seconds=setting.restart_seconds / 2)),
        )
        yield (
            "failures found in half the time",
            self._with(replace(setting, detection_seconds=setting.detection_seconds / 2)),
        )
        quick = Checkpoint(
            checkpoint.nbytes,
            checkpoint.stall_seconds / 2,
            checkpoint.write_seconds / 2,
            checkpoint.load_seconds / 2,
        )
        yield "checkpoints at twice the rate", self._with(replace(setting, checkpoint=quick))
        worst = max(setting.parts, key=lambda part: part.rate)
        if worst.rate > 0:
            better = tuple(_half_as_often(part) if part is worst else part for part in setting.parts)
            yield f"{worst.name}: half as many failures", self._with(replace(setting, parts=better))
        if setting.spares is not None:
            yield "one node more to stand by", self._with(replace(setting, spares=setting.spares + 1))
        if setting.degraded is not None:
            yield "no degraded nodes", self._with(replace(setting, degraded=None))

    def policies(self, checkpoints: dict[str, Checkpoint]) -> Iterator[tuple[str, str, Goodput]]:
        """Yield policies, kinds of checkpoint and the goodput with both, each at its best interval."""
        for recovery, seconds in RESTARTS.items():
            own = recovery == self.setting.recovery
            restart = self.setting.restart_seconds if own else seconds
            for kind, checkpoint in checkpoints.items():
                changed = replace(
                    self.setting, recovery=recovery, restart_seconds=restart, checkpoint=checkpoint
                )
                yield recovery, kind, self._with(changed)

    def _with(self, setting: Setting) -> Goodput:
        return replace(self, setting=at_best_interval(setting))


def at_best_interval(setting: Setting) -> Setting:
    """Return *setting* with the interval between checkpoints that loses least, by the closed form."""
    best = best_interval(setting)
    return setting.at(best if math.isfinite(best) else setting.interval_seconds)


def _half_as_often(part: Part) -> Part:
    return replace(part, mtbf_hours=2 * part.mtbf_hours)
