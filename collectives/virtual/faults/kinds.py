"""Kinds of faults that are no matter of the network: of ranks, messages, the store and clocks.

    DeadRank        a rank that is killed
    MessageDelay    messages that are late at random
    SlowStore       a store whose answers are late at random
    FailingCode     an exception, in a rank's code or in a hook of its backward pass
    AbortedGroup    a rank that aborts its process groups
    CrossedGroups   groups that one rank makes in another order than the others
    ClockJump       a rank's clock that is set, as by a time server

They are given together with the conditions of `sim.scenario.conditions`.  Delays and a slow store change
times and order, never results; what becomes of a script under the others, it decides.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from sim.errors import ConditionError
from sim.scenario.conditions import Condition
from sim.units import Quantity, parse_time

Where: TypeAlias = Literal["rank", "hook"]


@dataclass(frozen=True)
class DeadRank:
    """A rank that ends without a word, as a process that is killed.

    It posts nothing more, and what it had posted that no peer has met is gone; messages under way arrive.

    Attributes:
        rank: its place.
        iteration: it dies when it has finished so many iterations, that is steps of its optimizer; 0: before
            its first line.
        at: the time at which it dies, ``"10ms"`` or seconds; instead of *iteration*.
    """

    rank: int
    iteration: int | None = None
    at: Quantity | None = None
    at_ps: int | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if (self.iteration is None) == (self.at is None):
            raise ConditionError(f"{self}: expected an iteration or a time at which it dies, one of them")
        if self.iteration is not None and (not isinstance(self.iteration, int) or self.iteration < 0):
            raise ConditionError(f"{self}: iteration: expected a number from 0, got {self.iteration!r}")
        at_ps = None if self.at is None else parse_time(self.at, "time of a rank's death")
        object.__setattr__(self, "at_ps", 0 if self.iteration == 0 else at_ps)


@dataclass(frozen=True)
class _RandomTime:
    """Something that takes a random time, uniform from 0 to twice the mean.

    Attributes:
        mean: of the time, ``"50us"`` or seconds.
        seed: of the generators.
    """

    mean: Quantity
    seed: int = 0
    mean_ps: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean_ps", parse_time(self.mean, _WORDS[type(self)]))
        if self.seed < 0:
            raise ConditionError(f"{self}: seed: expected a number from 0, got {self.seed}")


class MessageDelay(_RandomTime):
    """Every message sets out late by a random time, uniform from 0 to twice the mean.

    Messages are those of all collectives and of send and recv. The delays of those from one rank to another
    come from the seed and the two ranks alone, so a run repeats exactly. They change times, never results.
    """


class SlowStore(_RandomTime):
    """Every call of the store, as for a rendezvous, takes a random time, uniform from 0 to twice the mean.

    The times of a rank come from the seed and the rank alone.
    """


_WORDS: dict[type, str] = {MessageDelay: "delay of messages", SlowStore: "time of a slow store"}


@dataclass(frozen=True)
class _AfterIterations:
    """Something that happens when so many iterations are finished.

    Attributes:
        rank: its place.
        iteration: after so many iterations, at least 1.
    """

    rank: int
    iteration: int = 1

    def __post_init__(self) -> None:
        _check_iteration(self, self.iteration)


@dataclass(frozen=True)
class FailingCode(_AfterIterations):
    """An exception that is raised on a rank when it has finished so many iterations.

    Attributes:
        where: ``rank``: where its optimizer has stepped; ``hook``: in a hook of the backward pass that
            follows, of the first module that is called.
    """

    where: Where = "rank"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.where not in get_args(Where):
            raise ConditionError(f"{self}: where: expected rank or hook, got {self.where!r}")


@dataclass(frozen=True)
class AbortedGroup(_AfterIterations):
    """A rank that aborts all its process groups when it has finished so many iterations."""


@dataclass(frozen=True)
class CrossedGroups(_AfterIterations):
    """After so many iterations all ranks make two groups and reduce in each; *rank*, in the other order."""


@dataclass(frozen=True)
class ClockJump:
    """The clock of a rank that ``time.time`` tells is set when it has finished so many iterations.

    Attributes:
        rank: its place.
        by: how much later it is then, in seconds; earlier, if negative.
        iteration: after so many iterations, at least 1.
    """

    rank: int
    by: float
    iteration: int = 1

    def __post_init__(self) -> None:
        _check_iteration(self, self.iteration)
        if not abs(self.by) <= 1e9:
            raise ConditionError(f"{self}: by: expected seconds, at most 1e9 either way, got {self.by}")


RankFault: TypeAlias = FailingCode | AbortedGroup | CrossedGroups | ClockJump
"""Something that happens to a rank when it has finished so many iterations."""

VirtualCondition: TypeAlias = Condition | DeadRank | MessageDelay | SlowStore | RankFault
"""Condition of a virtual cluster: one of its network and ranks, or a fault."""


def _check_iteration(fault: object, iteration: object) -> None:
    if not isinstance(iteration, int) or isinstance(iteration, bool) or iteration < 1:
        raise ConditionError(f"{fault}: iteration: expected a number from 1, got {iteration!r}")
