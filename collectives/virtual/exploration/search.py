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

A `Node` is one choice of a run.  What was tried of it and would not be another order now *sleeps* until
somebody does what it can see (Godefroid, "Partial-Order Methods for the Verification of Concurrent Systems",
LNCS 1032, 1996).

Assumptions: what ranks share is what is told by `sim.cluster.order.Choices.touch`.  Objects of Python that
they share besides are not seen.  A loop that only looks until something has changed could look
any number of times before; no more than twice in a row is run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from collectives.virtual.exploration.races import races
from collectives.virtual.exploration.turns import Touched, Turn, View, hinders, seen_by_ranks
from sim.cluster import Choices, Order, Thing, Touch
from sim.cluster.order import What
from sim.errors import OrdersError

MAX_TURNS = 200_000
"""Of one run: beyond it a program waits for nothing, in circles."""


class RunGivenUpError(BaseException):
    """Raised where a run would repeat an order that was explored; no `Exception`, as code may catch those."""


@dataclass
class Node:
    """One choice.

    Attributes:
        what: is chosen.
        options: of which one is.
        chosen: this time.
        wanted: options that are to be tried.
        tried: what the turns of those touched that were.
        asleep: the same of ranks that were tried before this choice came up, and have seen nothing new.
    """

    what: What
    options: tuple[int, ...]
    chosen: int
    wanted: set[int]
    tried: dict[int, set[Touched]] = field(default_factory=dict)
    asleep: Mapping[int, set[Touched]] = field(default_factory=dict)

    def left(self) -> set[int]:
        """Return the options that are wanted and neither were tried nor sleep."""
        return self.wanted - self.tried.keys() - self.asleep.keys()


class RunChoices:
    """The `sim.cluster.order.Choices` of one run.

    Args:
        nodes: the choices to begin with; new ones are added to them.
        place: returns the line of the user's code that has led here.
    """

    def __init__(self, nodes: list[Node], place: Callable[[], str]) -> None:
        self.turns: list[Turn] = []
        self._nodes = nodes
        self._place = place
        self._num_made = 0
        self._views: dict[Thing, View] = {}
        self._awaited: dict[int, set[Thing]] = {}
        self._last: dict[int, int] = {}

    def first(self, what: What, ranks: Sequence[int], now_ps: int) -> int:
        """Return what was chosen before, or else one that is not asleep."""
        options = tuple(ranks)
        number, self._num_made = self._num_made, self._num_made + 1
        if number < len(self._nodes):
            node = self._nodes[number]
            if (node.what, node.options) != (what, options):
                raise OrdersError(
                    f"orders: choice {number} of a run was of a {node.what} among {list(node.options)}, now "
                    f"it is of a {what} among {list(options)}: the program depends on more than the order of "
                    "events, such as objects that ranks share or that outlast a run, a clock, or chance "
                    "without a seed"
                )
        else:
            source = Node("source", options, options[0], set(options))
            node = self._new_turn(options, now_ps) if what == "turn" else source
            self._nodes.append(node)
        if what == "turn":
            self._begin_turn(Turn(node.chosen, now_ps, options, number))
        else:
            self.turns[-1].sources.append(node.chosen)
        return node.chosen

    def touch(self, thing: Thing, how: Touch) -> None:
        """Note a touch of the rank that has the turn."""
        turn = self.turns[-1]
        view = self._views.get(thing, View())
        awaited = self._awaited.get(turn.rank, ())
        turn.touches.append(Touched(thing, how, view, self._place(), how is Touch.READ and thing in awaited))
        self._views[thing] = view.after(turn.rank, how)

    def _begin_turn(self, turn: Turn) -> None:
        if len(self.turns) >= MAX_TURNS:
            raise OrdersError(f"orders: a run has taken {MAX_TURNS} turns; ranks look for what never comes")
        self._note_awaited()
        self.turns.append(turn)
        self._last[turn.rank] = len(self.turns)

    def _note_awaited(self) -> None:
        """Note which things the rank of the last turn is about to await."""
        if self.turns:
            turn = self.turns[-1]
            self._awaited[turn.rank] = {one.thing for one in turn.touches if one.how is Touch.AWAIT}

    def _new_turn(self, options: tuple[int, ...], now_ps: int) -> Node:
        """Return a choice that comes up for the first time.

        It falls on the rank that has not gone on for longest, and only if need be on one that takes what is
        there when nobody else can go on.
        """
        self._note_awaited()
        asleep = self._asleep(options, now_ps)
        awake = [rank for rank in options if rank not in asleep]
        if not awake:
            raise RunGivenUpError
        early = [rank for rank in awake if not self._awaited.get(rank)]
        chosen = min(early or awake, key=lambda rank: (self._last.get(rank, 0), rank))
        return Node("turn", options, chosen, {chosen}, asleep=asleep)

    def _asleep(self, options: tuple[int, ...], now_ps: int) -> dict[int, set[Touched]]:
        """Return the ranks whose next turn was tried before the last one, and has seen nothing new since."""
        if not self.turns or self.turns[-1].now_ps != now_ps:
            return {}
        last = self.turns[-1]
        before = self._nodes[last.node]
        return {
            rank: touches
            for rank, touches in {**before.asleep, **before.tried}.items()
            if rank != last.rank and rank in options and not hinders(last.touches, touches)
        }


T = TypeVar("T")

PATIENCE = 2
"""How often in a row a line of code looks at something in vain, in the orders that are run."""


@dataclass(frozen=True)
class Explored(Generic[T]):
    """One order."""

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
