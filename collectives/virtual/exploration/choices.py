"""Choices of one run of an exploration: those that were made before, and new ones after them.

A `Node` is one choice, with what has been tried of it and what is still wanted.  What was tried and would
not be another order now *sleeps* until somebody does what it can see (sleep sets: Godefroid, "Partial-Order
Methods for the Verification of Concurrent Systems", LNCS 1032, 1996).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from collectives.virtual.exploration.turns import Touched, Turn, View, hinders
from sim.cluster import Thing, Touch
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

    Attributes:
        turns: of the run so far.
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
            node = self._new_turn(options, now_ps) if what == "turn" else _new_source(options)
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


def _new_source(options: tuple[int, ...]) -> Node:
    return Node("source", options, options[0], set(options))
