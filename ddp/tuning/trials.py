"""Trials of a search: options of a step, the steps simulated with them, and which is best."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ddp.reduction.bucketing import MIB
from ddp.tuning.bucket_caps import CapRange
from sim.units import to_seconds


@dataclass(frozen=True, slots=True)
class StepOptions:
    """An algorithm, a strategy and bucket caps to try; without caps the buckets are torch's default."""

    algorithm: str
    strategy: str
    bucket_cap_mb: float | None = None
    bucket_cap_mb_list: tuple[float, ...] = ()

    @property
    def pair(self) -> tuple[str, str]:
        """Algorithm and strategy."""
        return self.algorithm, self.strategy


@dataclass(frozen=True, slots=True)
class Trial:
    """Options, and the step simulated with them.

    Attributes:
        options: what was tried.
        time_ps: length of the step.
        exposed_ps: of it, communication that the computation waits for.
        nbytes: size of each bucket, in the order in which they are reduced.
        engine: of the simulation.
    """

    options: StepOptions
    time_ps: int
    exposed_ps: int
    nbytes: tuple[int, ...]
    engine: str

    @property
    def seconds(self) -> float:
        """Length of the step."""
        return to_seconds(self.time_ps)

    @property
    def exposed_seconds(self) -> float:
        """Communication that the computation waits for."""
        return to_seconds(self.exposed_ps)


@dataclass(frozen=True, slots=True)
class Tuning:
    """The result of a search.

    Attributes:
        default: torch's DDP as it comes.
        torch: the best that torch's own DDP can be told: caps.
        best: of all.
        trials: everything that was simulated, in that order.
        searches: how each algorithm and strategy was searched.
        refused: algorithm, strategy and why the two do not go together here.
        complete: false where the search was interrupted.
        ranges: every division that one cap can give, from small caps to large.
    """

    default: Trial
    torch: Trial
    best: Trial
    trials: tuple[Trial, ...]
    searches: dict[tuple[str, str], str]
    refused: tuple[tuple[str, str, str], ...]
    complete: bool
    ranges: tuple[CapRange, ...]

    def curve(self, algorithm: str, strategy: str) -> list[tuple[float, Trial]]:
        """Return one cap for all buckets, in MiB, and what it gave, from small caps to large."""
        return sorted(
            (
                (trial.options.bucket_cap_mb, trial)
                for trial in self.trials
                if trial.options.pair == (algorithm, strategy) and trial.options.bucket_cap_mb is not None
            ),
            key=lambda point: point[0],
        )

    def plateaus(self, algorithm: str, strategy: str) -> list[tuple[float, Trial]]:
        """Return the curve with the smallest and the largest cap that give the same, for a drawing."""
        ranges = {own.cap_mb: own for own in self.ranges}
        points = []
        for cap, trial in self.curve(algorithm, strategy):
            own = ranges[cap]
            points += [
                (own.low / MIB, trial),
                (own.high / MIB if own.high else max(cap, own.low / MIB), trial),
            ]
        return points

    def pairs(self) -> list[Trial]:
        """Return the best trial of each algorithm and strategy, the shortest step first."""
        chosen = {t.options.pair for t in self.trials}
        return sorted((shortest(self.trials, *pair) for pair in chosen), key=rank)

    def one_cap(self) -> Trial:
        """Return the best that torch's own DDP can be told without a list of caps."""
        own = self.torch.options
        return shortest(
            [trial for trial in self.trials if not trial.options.bucket_cap_mb_list],
            own.algorithm,
            own.strategy,
        )

    def gain(self, trial: Trial) -> float:
        """Return the part of the default's step that *trial* saves."""
        return 1 - trial.time_ps / self.default.time_ps if self.default.time_ps else 0.0


def rank(trial: Trial) -> tuple[int, int, int, int]:
    """Sort key: the shorter step, then what is simpler to say, then fewer buckets."""
    own = trial.options
    return trial.time_ps, len(own.bucket_cap_mb_list), own.bucket_cap_mb is not None, len(trial.nbytes)


def best_of(trials: Iterable[Trial]) -> Trial:
    """Return the first of *trials* by `rank`."""
    return min(trials, key=rank)


def shortest(trials: Iterable[Trial], algorithm: str, strategy: str) -> Trial:
    """Return the best trial of *algorithm* and *strategy*."""
    own = [t for t in trials if t.options.pair == (algorithm, strategy)]
    return best_of(own)
