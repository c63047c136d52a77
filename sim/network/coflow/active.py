"""Messages under way together: they took to their links at one time and have them to themselves.

As long as nobody else comes to their links, all their ends are known.  A batch is a
`sim.network.coflow.coflow.Coflow` with what was left of each message when it began; it consists of *parts*,
each launched by somebody who wants to know when its messages have arrived.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import numpy as np

from sim.errors import UnitError
from sim.network.coflow.classes import Classes, Left, amount, class_durations_ps, class_left, end_ps
from sim.network.coflow.coflow import Coflow
from sim.network.sharing import max_min_rates
from sim.units import MAX_PS, Int64Array

Arrived: TypeAlias = Callable[[Int64Array | None], None]
"""Called with the numbers of messages that have arrived, or None for all that were sent."""


@dataclass(frozen=True, eq=False)
class Part:
    """Messages *first* to *last* - 1 of a batch, and who is told when they *arrived*.

    Attributes:
        arrived: is told.
        numbers: what it calls them; None: 0, 1, … and all that were sent.
        first: of its messages in the batch.
        last: one more than the number of its last message there.
    """

    arrived: Arrived
    numbers: Int64Array | None
    first: int
    last: int

    def number(self, message: int) -> int:
        """Return what *message* of the batch is called."""
        place = message - self.first
        return place if self.numbers is None else int(self.numbers[place])

    def among(self, there: Int64Array, ahead: int) -> Part | None:
        """Return this part with only messages *there*, *ahead* of which others come; None if it has none."""
        own = there[(there >= self.first) & (there < self.last)] - self.first
        if not own.size:
            return None
        return Part(self.arrived, own if self.numbers is None else self.numbers[own], ahead, ahead + own.size)

    def behind(self, ahead: int) -> Part:
        """Return this part moved on by *ahead* messages."""
        return Part(self.arrived, self.numbers, self.first + ahead, self.last + ahead)


class Single(NamedTuple):
    """A message that goes on by itself: its ends, who is told under which number, and what is left."""

    source: int
    destination: int
    arrived: Arrived
    number: int
    left: Left


@dataclass(eq=False)
class ActiveCoflow:
    """Messages of *coflow* that occupy their links from *start_ps* on.

    Attributes:
        coflow: the messages.
        parts: who is told of them.
        start_ps: when they took to their links.
        nbytes: of all messages or of each; None where something of them is through already.
        labels: then, which of *amounts* is left of each.
        amounts: what was left at *start_ps*, as `sim.network.coflow.classes.amount` counts.
    """

    coflow: Coflow
    parts: list[Part]
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
        if (self.ends_ps == first).all():
            return [first]
        return [int(end) for end in np.unique(self.ends_ps)]

    def ended_at(self, now_ps: int) -> Iterator[tuple[Arrived, Int64Array | None]]:
        """Yield who is to be told of messages that end at *now_ps*, and which."""
        there = self.ends_ps == now_ps
        everything = bool(there.all())
        for part in self.parts:
            own = there[part.first : part.last]
            if everything:
                yield part.arrived, part.numbers
            elif own.any():
                yield part.arrived, np.flatnonzero(own) if part.numbers is None else part.numbers[own]

    def is_fresh(self, now_ps: int) -> bool:
        """Return whether nothing of the messages is through at *now_ps*."""
        return self.start_ps == now_ps and self.nbytes is not None

    def joined(self, other: ActiveCoflow, coflow: Coflow) -> ActiveCoflow:
        """Return this batch and *other*, both fresh, as one; *coflow* is that of all their messages."""
        parts = self.parts + [part.behind(len(self.coflow)) for part in other.parts]
        return ActiveCoflow(coflow, parts, self.start_ps, np.concatenate([self._sizes(), other._sizes()]))

    def remainder(self, now_ps: int) -> ActiveCoflow | None:
        """Return what is left as a batch that begins at *now_ps*; None where it has too little symmetry."""
        classes = self._classes()
        if classes is None:
            return None
        left = class_left(classes, now_ps - self.start_ps)
        amounts = {flow: what.at(now_ps - self.start_ps) for flow, what in left.items()}
        distinct = sorted(set(amounts.values()))
        label_of = np.full(len(classes.amounts), -1, dtype=np.int64)
        for flow, what in amounts.items():
            label_of[flow] = distinct.index(what)
        labels = label_of[classes.class_of]
        there = np.flatnonzero(labels >= 0)
        parts, ahead = [], 0
        for part in self.parts:
            rest = part.among(there, ahead)
            if rest is not None:
                parts.append(rest)
                ahead = rest.last
        return ActiveCoflow(self.coflow.select(there), parts, now_ps, None, labels[there], distinct)

    def with_amounts(self) -> ActiveCoflow:
        """Return this batch with labels and amounts instead of sizes."""
        if self.nbytes is None:
            return self
        distinct, labels = np.unique(self._sizes(), return_inverse=True)
        amounts = [amount(nbytes) for nbytes in distinct.tolist()]
        return ActiveCoflow(self.coflow, self.parts, self.start_ps, None, labels, amounts)

    def followed_by(self, other: ActiveCoflow) -> ActiveCoflow:
        """Return this batch and *other*, both with amounts and beginning now, as one."""
        amounts = sorted({*self.amounts, *other.amounts})
        place = {what: label for label, what in enumerate(amounts)}
        labels = [
            np.array([place[what] for what in one.amounts], dtype=np.int64)[one.labels]
            for one in (self, other)
        ]
        parts = self.parts + [part.behind(len(self.coflow)) for part in other.parts]
        coflow = self.coflow.joined(other.coflow)
        return ActiveCoflow(coflow, parts, self.start_ps, None, np.concatenate(labels), amounts)

    def singles(self, now_ps: int, capacity: list[int]) -> Iterator[Single]:
        """Yield each message that is not through at *now_ps*, with the rate that it has."""
        part_of = {message: part for part in self.parts for message in range(part.first, part.last)}
        for message, left in self._left(now_ps, capacity):
            source, destination = self.coflow.ends[message]
            part = part_of[message]
            yield Single(source, destination, part.arrived, part.number(message), left)

    def _left(self, now_ps: int, capacity: list[int]) -> Iterator[tuple[int, Left]]:
        """Yield what is left of each message at *now_ps*; one that begins then has no rate yet."""
        routes = [
            tuple(link for link in links if link < len(capacity)) for links in self.coflow.links.tolist()
        ]
        if self.nbytes is None:
            amounts = [self.amounts[label] for label in self.labels.tolist()]
        else:
            amounts = [amount(nbytes) for nbytes in self._sizes().tolist()]
        rest, since = dict(enumerate(amounts)), self.start_ps
        if since == now_ps:
            yield from ((message, Left(what, 0, since)) for message, what in rest.items())
            return
        while rest:
            shared = max_min_rates([routes[message] for message in rest], capacity)
            left = {
                message: Left(what, rate, since)
                for (message, what), rate in zip(rest.items(), shared, strict=True)
            }
            ends = {message: end_ps(since, what.rest, what.rate) for message, what in left.items()}
            first = min(ends.values())
            if first > now_ps:
                yield from left.items()
                return
            rest = {message: left[message].at(first) for message, end in ends.items() if end > first}
            since = first

    def _classes(self) -> Classes | None:
        if self.nbytes is None:
            return self.coflow.classes_of(self.labels, self.amounts)
        return self.coflow.classes(self._sizes())

    def _sizes(self) -> Int64Array:
        assert self.nbytes is not None
        return np.broadcast_to(np.asarray(self.nbytes), (len(self.coflow),))
