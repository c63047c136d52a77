"""Search of all orders of events of a program: it is run again and again, each time in another order.

Two orders are of one *class* if the ranks cannot tell them apart: only turns that touch nothing in common are
in another order.  One order of each class is run.  Every run is looked through for races
(`collectives.virtual.exploration.races`); where one is found, a later run lets the other turn go first.

Source: Abdulla, Aronis, Jonsson and Sagonas, "Optimal dynamic partial order reduction", POPL 2014,
algorithm 1 (source sets and sleep sets), after Flanagan and Godefroid, "Dynamic partial-order reduction for
model checking software", POPL 2005.  What a look at a collective can see of those who take part, only that
all have, follows Aronis, Jonsson, Lång and Sagonas, "Optimal dynamic partial order reduction with observers",
TACAS 2018.  A receive from any source takes its message when nobody else can go on, and then each that has
come: Vakkalanka, Gopalakrishnan and Kirby, "Dynamic verification of MPI programs with reductions in presence
of split operations and relaxed orderings" (POE), CAV 2008.

Assumptions: what ranks share is what is told by `sim.cluster.order.Choices.touch`.  Objects of Python that
they share besides are not seen.  A loop that only looks until something has changed could look
any number of times before; no more than twice in a row is run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from collectives.virtual.exploration.choices import Node, RunChoices, RunGivenUpError
from collectives.virtual.exploration.races import races
from collectives.virtual.exploration.turns import Turn, seen_by_ranks
from sim.cluster import Choices, Order

T = TypeVar("T")

PATIENCE = 2
"""How often in a row a line of code looks at something in vain, in the orders that are run."""


@dataclass(frozen=True)
class Explored(Generic[T]):
    """One order.

    Attributes:
        turns: in that order.
        outcome: what the run returned.
    """

    turns: tuple[Turn, ...]
    outcome: T


@dataclass
class _Given:
    """The order of one run."""

    choices: RunChoices
    at_any_speed: bool = True

    def begin(self) -> Choices:
        return self.choices


def explore(
    run: Callable[[Order], T], place: Callable[[], str] = str, patience: int = PATIENCE
) -> Iterator[Explored[T]]:
    """Yield one order of each class, the first being that in which all ranks take turns.

    Args:
        run: carries the program out in an order; it may let nothing else decide what happens.
        place: returns the line of the user's code that has led here.
        patience: how often in a row a line of code may look at something in vain.

    Raises:
        OrdersError: something else decides, or a run does not end.
    """
    nodes: list[Node] = []
    known: set[int] = set()
    while True:
        choices = RunChoices(nodes, place)
        try:
            outcome = run(_Given(choices))
        except RunGivenUpError:
            pass
        else:
            seen = hash(seen_by_ranks(choices.turns))
            if seen not in known:  # what a look cannot see of a collective may bring the same class again
                known.add(seen)
                yield Explored(tuple(choices.turns), outcome)
        _want_more(nodes, choices.turns, patience)
        if not _go_back(nodes):
            return


def _want_more(nodes: list[Node], turns: list[Turn], patience: int) -> None:
    """Note what the turns of a run have touched, and what else is wanted because of its races."""
    for turn in turns:
        nodes[turn.node].tried.setdefault(turn.rank, set()).update(turn.touches)
    for race in races(turns, patience):
        node = nodes[race.node]
        possible = race.first & set(node.options)
        if not possible:
            node.wanted.update(node.options)
        elif not possible & node.wanted:
            node.wanted.add(min(possible))


def _go_back(nodes: list[Node]) -> bool:
    """Cut *nodes* off after the last choice of which something is left to try, and choose that."""
    while nodes:
        node = nodes[-1]
        if node.what == "source":
            node.tried[node.chosen] = set()
        left = node.left()
        if left:
            node.chosen = min(left)
            return True
        nodes.pop()
    return False
