"""Order of what nothing in time puts in order: which of several ranks, messages or completions is first.

A run repeats exactly because every such choice falls on the least rank.  That is one order of many; on real
machines it is decided by chance.  An `Order` makes the choices of a run in its place:

    turn      which of the ranks, and threads of ranks, that can go on at the same virtual time does
    source    which of the messages that arrived at the same time a receive from any source gets

Times are what they were: an order chooses only among what happens at one instant.  But an order may ask that
nothing take time (`Order.at_any_speed`): then all that no cause puts in order is at one instant, and its
choices are all that any speed of ranks and messages could bring about.  What ranks wait by the clock (a
sleep, a time-out) takes its time there too, and passes when nothing else can happen.  Under an order all that
follows from a turn at the same instant happens before the next turn is given, so a rank may act there as
often as it likes before another acts once.

Some orders differ in nothing that a program can see.  Who wants to leave those out has to know what ranks
share, so whatever lets them see each other's order says so with `Choices.touch`.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random
from typing import Literal, Protocol, TypeAlias

What: TypeAlias = Literal["turn", "source"]
"""What is chosen; the docstring of this module says of which."""

_APART = 1 << 20
"""Between the numbers of two threads of a rank; more than a cluster has ranks."""


def number_of(rank: int, thread: int) -> int:
    """Return the number in an order of a rank's *thread*, counted as they start: 0 is the rank's own."""
    return rank + thread * _APART


def thread_of(number: int) -> int:
    """Return which of its rank's threads has *number*."""
    return number // _APART


def spell_number(number: int) -> str:
    """Return in words whose *number* it is."""
    thread, rank = divmod(number, _APART)
    return f"rank {rank}, thread {thread}" if thread else f"rank {rank}"


class Touch(Enum):
    """How a rank touches what it shares with others.

    Two touches of one thing by different ranks can be told apart by their order unless both read, or both
    contribute, or one of them says that the rank is about to await the thing: then its next turn takes what
    is there of what others contribute, and may as well come late.
    """

    READ = "looks at"
    CONTRIBUTE = "takes part in"
    WRITE = "changes"
    AWAIT = "awaits"


@dataclass(frozen=True)
class Thing:
    """Something that ranks share.

    Attributes:
        name: for people to read.
        key: tells it from others of that name; the same in every run.
        contributions: who looks at it sees no difference before there are so many.
    """

    name: str
    key: Hashable = ()
    contributions: int = 1


class Choices(Protocol):
    """The choices of one run, in the order in which they come up."""

    def first(self, what: What, ranks: Sequence[int], now_ps: int) -> int:
        """Return one of *ranks*, which ascend; for a turn it is asked also where there is only one.

        For a turn they are numbers of `number_of`.
        """

    def touch(self, thing: Thing, how: Touch) -> None:
        """Note that the rank whose turn it is touches *thing*."""


class Order(Protocol):
    """How the choices of a run are made; it can be used for any number of runs."""

    @property
    def at_any_speed(self) -> bool:
        """Whether messages take no time; computation must not take any, either."""

    def begin(self) -> Choices:
        """Return the choices of a run that begins now."""


@dataclass(frozen=True)
class RandomOrder:
    """Choices at random; the same seed makes the same choices.

    Attributes:
        seed: of the generator.
        at_any_speed: whether messages take no time.
    """

    seed: int = 0
    at_any_speed: bool = False

    def begin(self) -> Choices:
        """Return the choices of a run that begins now."""
        return _RandomChoices(Random(self.seed))


class _RandomChoices:
    def __init__(self, random: Random) -> None:
        self._random = random

    def first(self, what: What, ranks: Sequence[int], now_ps: int) -> int:
        """Return one of *ranks*, each as likely as the others."""
        return ranks[0] if len(ranks) == 1 else self._random.choice(ranks)

    def touch(self, thing: Thing, how: Touch) -> None:
        """Do nothing: chance needs no reasons."""
