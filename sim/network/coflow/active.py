"""Active coflows: messages that took to their links at one time and have these to themselves.

As long as nobody else comes to their links, all their ends are known.  An active coflow is a
`sim.network.coflow.coflow.Coflow` with what was left of each message when it began.  Those of several
launches may be one: each launch has a slice of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from sim.errors import UnitError
from sim.network.capacity import Capacities
from sim.network.coflow.classes import Classes, class_durations_ps, class_left
from sim.network.coflow.coflow import Coflow
from sim.network.coflow.launch import CoflowLaunch
from sim.network.flow import amount, end_ps
from sim.network.launch import Connection
from sim.network.sharing import max_min_rates
from sim.units import MAX_PS, Int64Array


@dataclass(frozen=True, eq=False)
class LaunchSlice:
    """Messages *first* to *last* - 1 of an active coflow, which were sent by one launch.

    Attributes:
        launch: is told when they arrive.
        numbers: theirs in the launch; None: 0, 1, … and all that it has sent.
        first: the place of the first of them in the active coflow.
        last: one more than the place of the last.
    """

    launch: CoflowLaunch
    numbers: Int64Array | None
    first: int
    last: int

    def number(self, place: int) -> int:
        """Return the number in the launch of the message at *place* of the active coflow."""
        own = place - self.first
        return own if self.numbers is None else int(self.numbers[own])

    def among(self, places: Int64Array, first: int) -> LaunchSlice | None:
        """Return the slice of those messages that are at *places*, moved to *first*; None: none are."""
        own = places[(places >= self.first) & (places < self.last)] - self.first
        if not own.size:
            return None
        numbers = own if self.numbers is None else self.numbers[own]
        return LaunchSlice(self.launch, numbers, first, first + own.size)

    def moved(self, by: int) -> LaunchSlice:
        """Return the slice of the same messages, *by* places on."""
        return LaunchSlice(self.launch, self.numbers, self.first + by, self.last + by)


class Remainder(NamedTuple):
    """What is left of a message of a launch; it can go on as a flow (`Network.resume`)."""

    launch: CoflowLaunch
    number: int
    connection: Connection
    rest: int


@dataclass(eq=False)
class ActiveCoflow:
    """Messages of *coflow* that occupy their links from *start_ps* on.

    Attributes:
        coflow: the messages.
        slices: of the launches that have sent them.
        start_ps: when they took to their links.
        nbytes: of all messages or of each; None where something of them has been carried already.
        labels: then, which of *amounts* is left of each.
        amounts: what was left at *start_ps*, as `sim.network.flow.amount` counts.
        ends_ps: when each message ends, once `work_out` has worked it out, shape (m,).
    """

    coflow: Coflow
    slices: list[LaunchSlice]
    start_ps: int
    nbytes: int | Int64Array | None
    labels: Int64Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    amounts: list[int] = field(default_factory=list)
    ends_ps: Int64Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def work_out(self) -> bool:
        """Work out when each message ends; return whether that can be done at once.

        It cannot where there is too little symmetry, and where times do not fit into 62 bits.
        """
        try:
            durations = self._durations_ps()
        except (UnitError, OverflowError):
            return False
        if durations is None or int(durations.max()) + self.start_ps > MAX_PS:
            return False
        self.ends_ps = durations + self.start_ps
        return True

    def _durations_ps(self) -> Int64Array | None:
        if self.nbytes is not None:
            return self.coflow.durations_ps(self.nbytes)
        classes = self._classes()
        if classes is None:
            return None
        durations: Int64Array = np.array(class_durations_ps(classes), dtype=np.int64)[classes.class_of]
        return durations

    def end_times(self) -> list[int]:
        """Return the times at which messages end, in order."""
        first = int(self.ends_ps[0])
        if (self.ends_ps == first).all():  # mostly, and quicker to see than to sort
            return [first]
        times: list[int] = np.unique(self.ends_ps).tolist()
        return times

    def ended_at(self, now_ps: int) -> Iterator[tuple[CoflowLaunch, Int64Array | None]]:
        """Yield the launches of messages that end at *now_ps*, each with the numbers of these."""
        there = self.ends_ps == now_ps
        everything = bool(there.all())
        for one in self.slices:
            own = there[one.first : one.last]
            if everything:
                yield one.launch, one.numbers
            elif own.any():
                yield one.launch, np.flatnonzero(own) if one.numbers is None else one.numbers[own]

    def is_fresh(self, now_ps: int) -> bool:
        """Return whether nothing of the messages has been carried at *now_ps*."""
        return self.start_ps == now_ps and self.nbytes is not None

    def joined(self, other: ActiveCoflow, coflow: Coflow) -> ActiveCoflow:
        """Return this one and *other*, both fresh, as one; *coflow* is that of all their messages."""
        slices = self.slices + [one.moved(len(self.coflow)) for one in other.slices]
        return ActiveCoflow(coflow, slices, self.start_ps, np.concatenate([self._sizes(), other._sizes()]))

    def remainder(self, now_ps: int) -> ActiveCoflow | None:
        """Return what is left as one that begins at *now_ps*; None where it has too little symmetry."""
        classes = self._classes()
        if classes is None:
            return None
        left = class_left(classes, now_ps - self.start_ps)
        amounts = {number: what.at(now_ps - self.start_ps) for number, what in left.items()}
        distinct = sorted(set(amounts.values()))
        place = {what: label for label, what in enumerate(distinct)}

        label_of = np.full(len(classes.amounts), -1, dtype=np.int64)
        for number, what in amounts.items():
            label_of[number] = place[what]
        labels = label_of[classes.class_of]
        there = np.flatnonzero(labels >= 0)

        slices: list[LaunchSlice] = []
        for one in self.slices:
            rest = one.among(there, slices[-1].last if slices else 0)
            if rest is not None:
                slices.append(rest)
        return ActiveCoflow(self.coflow.select(there), slices, now_ps, None, labels[there], distinct)

    def followed_by(self, other: ActiveCoflow) -> ActiveCoflow:
        """Return this one and *other*, which begins with it, as one, by what is left of each message."""
        parts = [self._labelled(), other._labelled()]
        amounts = sorted({what for _, own in parts for what in own})
        place = {what: label for label, what in enumerate(amounts)}
        labels = [np.array([place[what] for what in own], dtype=np.int64)[which] for which, own in parts]
        slices = self.slices + [one.moved(len(self.coflow)) for one in other.slices]
        coflow = self.coflow.joined(other.coflow)
        return ActiveCoflow(coflow, slices, self.start_ps, None, np.concatenate(labels), amounts)

    def remainders(self, now_ps: int, capacities: Capacities) -> Iterator[Remainder]:
        """Yield what is left of each message that has not ended at *now_ps*."""
        left = self._left(now_ps, capacities)
        for one in self.slices:
            for place in range(one.first, one.last):
                if place in left:
                    connection = self.coflow.connections[place]
                    yield Remainder(one.launch, one.number(place), connection, left[place])

    def _left(self, now_ps: int, capacities: Capacities) -> dict[int, int]:
        """Return what is left at *now_ps* of each message that has not ended, message by message."""
        labels, amounts = self._labelled()
        rest, since_ps = {place: amounts[label] for place, label in enumerate(labels.tolist())}, self.start_ps
        no_link = self.coflow.no_link
        routes = [tuple(link for link in links if link != no_link) for links in self.coflow.links.tolist()]
        while rest and since_ps < now_ps:
            taken = [routes[message] for message in rest]
            rates = dict(zip(rest, max_min_rates(taken, capacities.among(taken)), strict=True))
            ends = {message: end_ps(since_ps, rest[message], rate) for message, rate in rates.items()}
            until_ps = min(now_ps, *ends.values())
            rest = {
                message: rest[message] - rates[message] * (until_ps - since_ps)
                for message, end in ends.items()
                if end > until_ps
            }
            since_ps = until_ps
        return rest

    def _classes(self) -> Classes | None:
        return self.coflow.classes_of(*self._labelled())

    def _labelled(self) -> tuple[Int64Array, list[int]]:
        """Return which amount was left of each message at the start, and the amounts."""
        if self.nbytes is None:
            return self.labels, self.amounts
        distinct, labels = np.unique(self._sizes(), return_inverse=True)
        return labels, [amount(nbytes) for nbytes in distinct.tolist()]

    def _sizes(self) -> Int64Array:
        assert self.nbytes is not None
        return np.broadcast_to(np.asarray(self.nbytes), (len(self.coflow),))
