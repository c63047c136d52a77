"""Order of what nothing in time puts in order: which of several ranks, messages or completions is first.

A run repeats exactly because every such choice falls on the least rank.  That is one order of many; on real
machines it is decided by chance.  An `Order` makes the choices of a run in its place:

    turn      which of the ranks that can go on at the same virtual time does
    source    which of the messages that arrived at the same time a receive from any source gets

Times are what they were: an order chooses only among what happens at one instant.  Under an order all that
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


class Touch(Enum):
    """How a rank touches what it shares with others.

    Two touches of one thing by different ranks can be told apart by their order unless both read, or both
    contribute.
    """

    READ = "reads"
    CONTRIBUTE = "contributes to"
    WRITE = "writes"


class Choices(Protocol):
    """The choices of one run, in the order in which they come up."""

    def first(self, what: What, ranks: Sequence[int]) -> int:
        """Return one of *ranks*, which ascend; for a turn it is asked also where there is only one."""

    def touch(self, thing: Hashable, how: Touch) -> None:
        """Note that the rank whose turn it is touches *thing*; its first part says of which kind it is."""


class Order(Protocol):
    """How the choices of a run are made; it can be used for any number of runs."""

    def begin(self) -> Choices:
        """Return the choices of a run that begins now."""


@dataclass(frozen=True)
class RandomOrder:
    """Choices at random; the same seed makes the same choices.

    Attributes:
        seed: of the generator.
    """

    seed: int = 0

    def begin(self) -> Choices:
        """Return the choices of a run that begins now."""
        return _RandomChoices(Random(self.seed))


class _RandomChoices:
    def __init__(self, random: Random) -> None:
        self._random = random

    def first(self, what: What, ranks: Sequence[int]) -> int:
        """Return one of *ranks*, each as likely as the others."""
        return ranks[0] if len(ranks) == 1 else self._random.choice(ranks)

    def touch(self, thing: Hashable, how: Touch) -> None:
        """Do nothing: chance needs no reasons."""
