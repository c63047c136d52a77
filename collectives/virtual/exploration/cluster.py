"""Ranks in virtual time on which a program runs in every order of events, and the report of these orders."""

from __future__ import annotations

import hashlib
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from collectives.catalogue.selectors import Choice
from collectives.timing.assumptions import Assumptions
from collectives.virtual.diagnosis.places import current_place
from collectives.virtual.exploration.search import PATIENCE, Explored, explore
from collectives.virtual.exploration.turns import Touched, Turn
from collectives.virtual.isolation.per_rank import Streams
from collectives.virtual.parameters.record import ParameterRecord
from collectives.virtual.setting import VirtualRun
from collectives.virtual.task import FunctionOrScript
from collectives.virtual.virtual_run import run
from sim.cluster import Order, Touch
from sim.cluster.order import spell_number
from sim.errors import OrdersError, SimulationError
from sim.topology import Topology


@dataclass(frozen=True)
class Outcome:
    """What a run has come to.

    Attributes:
        error: that ended it.
        told: what is compared, by what it is in words: results, what ranks print, final parameters.
        shown: of those that can be read, what they say.
        printed: by ranks, one after another.
        run: itself, if no error has ended it.
    """

    error: BaseException | None
    told: Mapping[str, object] = field(default_factory=dict)
    shown: Mapping[str, str] = field(default_factory=dict, compare=False)
    printed: Sequence[str] = field(default=(), compare=False)
    run: VirtualRun | None = field(default=None, compare=False)

    @classmethod
    def of(
        cls,
        error: BaseException | None,
        run: VirtualRun | None,
        results: Sequence[Any],
        printed: Mapping[int, str],
        parameters: Mapping[tuple[Any, int, str], bytes],
    ) -> Outcome:
        """Return the outcome of a run."""
        told: dict[str, object] = {}
        shown: dict[str, str] = {}
        for rank, result in enumerate(results):
            told[f"what rank {rank} returns"] = digest(result)
            shown[f"what rank {rank} returns"] = repr(result)
        for rank, text in sorted(printed.items()):
            told[f"what rank {rank} prints"] = text
            shown[f"what rank {rank} prints"] = repr(text)
        for (model, rank, name), held in sorted(parameters.items(), key=str):
            told[f"parameter {name} of {model[0]} on rank {rank}"] = held
        return cls(error, told, shown, [text for _, text in sorted(printed.items())], run)

    def difference(self, other: Outcome) -> str:
        """Return in words of what *other* differs from this, the first there is; nothing if it does not."""
        if other.error is not None or self.error is not None:
            return "" if other.error is self.error else "whether it fails"
        for what in (*self.told, *other.told):
            if self.told.get(what) != other.told.get(what):
                return what
        return ""


def digest(value: Any) -> object:
    """Return what is equal for values that are equal, bit for bit; of what has no value, its type."""
    match value:
        case torch.Tensor():
            plain = value.detach().cpu().contiguous().reshape(-1)
            held = (
                hashlib.sha256(plain.view(torch.uint8).numpy().tobytes()).digest() if plain.numel() else b""
            )
            return str(value.dtype), tuple(value.shape), held
        case list() | tuple():
            return type(value).__name__, tuple(digest(one) for one in value)
        case dict():
            return "dict", tuple((digest(key), digest(own)) for key, own in value.items())
        case None | bool() | int() | float() | complex() | str() | bytes():
            return type(value).__name__, repr(value)
        case _:
            return type(value).__name__


_SHOWN = 8
"""Turns of an order that are shown, from the first in which two orders differ."""
_SHOWN_CHARACTERS = 100


@dataclass(frozen=True)
class Parting:
    """An order that has come to something else than the first, or has failed.

    Attributes:
        number: of the order, from 1.
        order: itself.
        first: the first order; itself where that has failed.
        what: differs, in words.
    """

    number: int
    order: Explored[Outcome]
    first: Explored[Outcome]
    what: str

    def lines(self) -> list[str]:
        """Return both orders in lines, from where they part."""
        if self.order is self.first:
            return [f"order 1 {self._outcome(self.order)}"]
        ours, theirs = _told(self.order.turns), _told(self.first.turns)
        same = 0
        while same < min(len(ours), len(theirs)) and ours[same] == theirs[same]:
            same += 1
        lines = []
        for number, order, told in ((1, self.first, theirs), (self.number, self.order, ours)):
            lines.append(f"order {number} {self._outcome(order)}:")
            lines += [f"  … {same} turns as in the other" if same > 1 else "  … 1 turn as in the other"] * (
                same > 0
            )
            lines += [f"  {line}" for line in told[same : same + _SHOWN]]
            hidden = len(told) - same - _SHOWN
            lines += [f"  … {hidden} more"] * (hidden > 0)
        return lines

    def _outcome(self, order: Explored[Outcome]) -> str:
        if order.outcome.error is not None:
            error = order.outcome.error.__cause__ or order.outcome.error
            text = str(error).splitlines()[0] if str(error) else ""
            return f"ends in {type(error).__name__}: {text}"
        shown = order.outcome.shown.get(self.what)
        if shown is None:
            return "ends"
        cut = shown if len(shown) <= _SHOWN_CHARACTERS else f"{shown[:_SHOWN_CHARACTERS]}…"
        return f"ends, and {self.what} is {cut}"


@dataclass
class Exploration:
    """Orders in which a program has run.

    Attributes:
        num_orders: so many.
        first: of them.
        parting: an order that has come to something else, or has failed; None: all came to the same.
    """

    num_orders: int = 0
    first: Explored[Outcome] | None = None
    parting: Parting | None = None

    def add(self, explored: Explored[Outcome]) -> None:
        """Take note of one more order."""
        self.num_orders += 1
        if self.first is None:
            self.first = explored
            if explored.outcome.error is not None:
                self.parting = Parting(1, explored, explored, "whether it fails")
        elif self.parting is None:
            what = self.first.outcome.difference(explored.outcome)
            if what:
                self.parting = Parting(self.num_orders, explored, self.first, what)


def _told(turns: Sequence[Turn]) -> list[str]:
    """Return in lines what ranks did of which others may know the order."""
    return [line for turn in turns for line in _of_turn(turn)]


def _of_turn(turn: Turn) -> Iterator[str]:
    """Yield what a rank did in a turn: the first thing that it touched in each line, and what it took."""
    told: set[str] = set()
    sources = list(turn.sources)
    for touch in turn.touches:
        if touch.is_late and sources:
            yield f"{spell_number(turn.rank)}{_at(touch)} takes the message of rank {sources.pop(0)}"
        elif touch.how is not Touch.AWAIT and not touch.is_late and touch.place not in told:
            told.add(touch.place)
            yield f"{spell_number(turn.rank)}{_at(touch)} {touch.how.value} {touch.thing.name}"


def _at(touch: Touched) -> str:
    return f" at {touch.place}" if touch.place else ""


DEFAULT_LIMIT = 10_000


@dataclass(frozen=True)
class ClusterOrders:
    """Runs of one program on so many ranks, one run for each order of events that the ranks can tell apart.

    Messages and computation take no time, so every order is possible that any speed of ranks and network
    could bring about; only what ranks wait by the clock takes its time.

    Attributes:
        ranks: how many; None: as many as *network* has, where it says so.
        network: of which nothing but its places matters.
        algorithm: of collectives, where the code chooses none.
        limit: of orders; beyond it the exploration gives up.
        patience: how often in a row a line of code may look at something in vain, before it changes.
    """

    ranks: int | None = None
    network: Topology | str | os.PathLike[str] | None = None
    algorithm: Choice | None = None
    limit: int = DEFAULT_LIMIT
    patience: int = PATIENCE

    def each(self, fn_or_script: FunctionOrScript, argv: Sequence[str] = ()) -> Iterator[Explored[Outcome]]:
        """Run it in one order after another, and yield each with its outcome.

        Raises:
            OrdersError: there are more than the limit; more than the order of events decides how it runs; or
                a run does not end.
        """

        def carried_out(order: Order) -> Outcome:
            return self._run(fn_or_script, argv, order)

        for number, explored in enumerate(explore(carried_out, current_place, self.patience)):
            if number == self.limit:
                raise OrdersError(
                    f"orders: more than {self.limit} orders of events can be told apart; give fewer ranks or "
                    "iterations, or a higher limit"
                )
            yield explored

    def explore(self, fn_or_script: FunctionOrScript, argv: Sequence[str] = ()) -> Exploration:
        """Run it in every order, or until one has another outcome than the first, or fails.

        Raises:
            OrdersError: as `each`.
        """
        exploration = Exploration()
        for explored in self.each(fn_or_script, argv):
            exploration.add(explored)
            if exploration.parting is not None:
                break
        return exploration

    def _run(self, fn_or_script: FunctionOrScript, argv: Sequence[str], order: Order) -> Outcome:
        """Carry the program out in one order."""
        printed: dict[int, io.StringIO] = {}
        parameters = ParameterRecord()

        def streams(rank: int) -> Streams:
            own = printed.setdefault(rank, io.StringIO())
            return own, own

        is_function = callable(fn_or_script)
        outcome: VirtualRun | None = None
        error: BaseException | None = None
        try:
            outcome = run(
                fn_or_script,
                self.ranks,
                self.network,
                algorithm=self.algorithm,
                assumptions=Assumptions.ideal(),
                argv=argv,
                order=order,
                parameters=parameters,
                streams=streams,
            )
        except OrdersError:
            raise
        except SimulationError as raised:
            if isinstance(raised.__cause__, OrdersError):
                raise raised.__cause__ from None
            error = raised
        results = outcome.results if outcome is not None and is_function else []
        texts = {rank: own.getvalue() for rank, own in printed.items()}
        return Outcome.of(error, outcome, results, texts, parameters.digests())
