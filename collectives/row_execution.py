"""A collective event by event, with the steps of all ranks as rows of arrays.

Each rank is at a row; when all its messages of that row have arrived, it comes to the next.  A message
is sent as soon as both its ends are at its row, together with all others of which that becomes true at
the same instant.  Nothing here stands for a single message, so where ranks keep in step a row costs a few
array operations; where they do not, lists of the few that move are faster than arrays, and it costs what
single messages cost.

It takes programs whose sends and receives match row by row (`collectives.rows`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from collectives.chunking import Chunking
from collectives.program import Algorithm, Step
from collectives.render import spell_message
from collectives.rows import MostlyEqual, Pattern, reduced_nbytes, rows_of
from sim.flight import Flight
from sim.network import Network
from sim.pace import Pauses, call_after
from sim.units import Int64Array

FEW = 8
"""Ranks or messages up to which lists are faster than arrays."""


class _Messages:
    """Messages between the same ranks, row after row.

    Attributes:
        source: rank that sends each.
        destination: rank that receives it.
        flight: they themselves, on their way.
        per_rank: how many each rank sends and receives.
        ranks: those that do.
    """

    def __init__(
        self, network: Network, hosts: Int64Array, source: Int64Array, destination: Int64Array
    ) -> None:
        self.source, self.destination = source, destination
        self.flight = Flight.between(network.topology, hosts[source], hosts[destination])
        counts = (np.bincount(ends, minlength=len(hosts)) for ends in (source, destination))
        self.per_rank: Int64Array = sum(counts, np.zeros(len(hosts), dtype=np.int64))
        self.ranks = np.flatnonzero(self.per_rank)

    @cached_property
    def ends(self) -> list[tuple[int, int]]:
        """Source and destination of each."""
        return list(zip(self.source.tolist(), self.destination.tolist(), strict=True))

    @cached_property
    def of_rank(self) -> list[list[int]]:
        """The numbers of those that each rank sends or receives."""
        numbers: list[list[int]] = [[] for _ in self.per_rank]
        for number, (source, destination) in enumerate(self.ends):
            numbers[source].append(number)
            numbers[destination].append(number)
        return numbers


class _Row:
    """A step of all ranks.

    Attributes:
        number: of the step.
        messages: those that move.
        nbytes: of all, or of each.
        pause: of each rank before it, if ranks pause.
        reducing: how long each rank reduces at its end, if that takes time.
        num_to_come: ranks that have yet to leave it.
    """

    def __init__(
        self,
        number: int,
        messages: _Messages,
        nbytes: int | Int64Array,
        pause: Int64Array | None,
        reducing: Int64Array | None,
    ) -> None:
        self.number = number
        self.messages = messages
        self.nbytes = nbytes
        self.pause = pause
        self.reducing = reducing
        self.num_to_come = len(messages.per_rank)

    @cached_property
    def waits_for(self) -> Int64Array:
        """How many ends of each message have yet to come."""
        return np.full(len(self.messages.source), 2, dtype=np.int64)

    @cached_property
    def left(self) -> Int64Array:
        """How many messages each rank still waits for."""
        return self.messages.per_rank.copy()

    def come(self, ranks: Int64Array) -> Int64Array:
        """Note that *ranks* are there; return the messages whose second end has come with them."""
        if len(ranks) <= FEW:
            waits, ready = self.waits_for.data, []
            for rank in ranks.tolist():
                for number in self.messages.of_rank[rank]:
                    waits[number] -= 1
                    if not waits[number]:
                        ready.append(number)
            return np.array(sorted(ready), dtype=np.int64)
        here = np.zeros(len(self.left), dtype=np.int64)
        here[ranks] = 1
        before = self.waits_for.copy()
        np.subtract(before, here[self.messages.source] + here[self.messages.destination], out=self.waits_for)
        return np.flatnonzero((before > 0) & (self.waits_for == 0))

    def arrive(self, numbers: Int64Array) -> Int64Array:
        """Note that messages have arrived; return the ranks that wait for no more."""
        if len(numbers) <= FEW:
            left, through = self.left.data, []
            for number in numbers.tolist():
                for rank in self.messages.ends[number]:
                    left[rank] -= 1
                    if not left[rank]:
                        through.append(rank)
            return np.array(sorted(through), dtype=np.int64)
        ends = np.concatenate([self.messages.source[numbers], self.messages.destination[numbers]])
        before = self.left.copy()
        np.subtract.at(self.left, ends, 1)
        return np.flatnonzero((before > 0) & (self.left == 0))


@dataclass(frozen=True, eq=False, slots=True)
class _Arrivals:
    """Tells an execution that messages of a row have arrived, and the network what they are."""

    execution: RowExecution
    row: _Row

    def __call__(self, numbers: Int64Array | None) -> None:
        self.execution.arrived(self.row, numbers)

    def describe(self, message: int) -> tuple[str, str]:
        return self.execution.describe(self.row, message)


class RowExecution:
    """One collective on the ranks of a group; a `collectives.queues.Execution`.

    Args:
        network: carries the messages.
        hosts: the place of each rank in the network's topology.
        algorithm: the program of every rank; its rows match.
        chunking: how it divides the buffer.
        pauses: what ranks add to the time of the network, if anything.
        finished: called with ranks that are done, once for each.
    """

    def __init__(
        self,
        network: Network,
        hosts: Int64Array,
        algorithm: Algorithm,
        chunking: Chunking,
        pauses: Pauses | None,
        finished: Callable[[Int64Array], None],
    ) -> None:
        self._network = network
        self._hosts = hosts
        self._algorithm = algorithm
        self._chunking = chunking
        self._pauses = pauses
        self._finished = finished
        self._steps: Iterator[Step] = rows_of(algorithm, len(hosts))
        self._pattern: Pattern | None = None
        self._known: dict[bytes, _Messages] = {}
        self._rows: dict[int, _Row] = {}
        self._num_pulled = 0

    def begin(self, ranks: Int64Array) -> None:
        """Let *ranks* start now."""
        self._enter(0, ranks)

    def _enter(self, number: int, ranks: Int64Array) -> None:
        """Let *ranks* come to row *number*; those without messages there go on."""
        while len(ranks):
            row = self._row(number)
            if row is None:
                self._finished(ranks)
                return
            busy = row.messages.per_rank[ranks] > 0
            self._after(row.pause, ranks[busy], partial(self._post, row))
            ranks = ranks[~busy]
            if row.reducing is not None and row.reducing[ranks].any():
                self._after(row.reducing, ranks, partial(self._leave, row))
                return
            self._forget(row, len(ranks))
            number += 1

    def _post(self, row: _Row, ranks: Int64Array) -> None:
        """Send the messages of *row* both whose ends are at it, now that *ranks* are."""
        messages, arrived = row.messages, _Arrivals(self, row)
        if len(ranks) == len(messages.ranks):
            self._network.launch(messages.flight, row.nbytes, arrived)
            return
        numbers = row.come(ranks)
        if numbers.size:
            sizes = row.nbytes if isinstance(row.nbytes, int) else row.nbytes[numbers]
            self._network.launch(messages.flight, sizes, arrived, numbers)

    def arrived(self, row: _Row, numbers: Int64Array | None) -> None:
        """Let ranks whose messages of *row* have all arrived reduce, and go on."""
        ranks = row.messages.ranks if numbers is None else row.arrive(numbers)
        self._after(row.reducing, ranks, partial(self._leave, row))

    def describe(self, row: _Row, message: int) -> tuple[str, str]:
        """Return what this execution does, and which *message* of *row* is under way."""
        nbytes = row.nbytes if isinstance(row.nbytes, int) else int(row.nbytes[message])
        ends = row.messages.ends[message]
        return f"{self._algorithm.collective} by {self._algorithm}", spell_message(row.number, *ends, nbytes)

    def _leave(self, row: _Row, ranks: Int64Array) -> None:
        self._forget(row, len(ranks))
        self._enter(row.number + 1, ranks)

    def _forget(self, row: _Row, num_ranks: int) -> None:
        """Note that so many ranks have left *row*; keep it until all have."""
        row.num_to_come -= num_ranks
        if not row.num_to_come:
            del self._rows[row.number]

    def _after(
        self, delays: Int64Array | None, ranks: Int64Array, then: Callable[[Int64Array], None]
    ) -> None:
        """Call *then* with *ranks*, if there are any, each after its delay."""
        if not len(ranks):
            return
        if delays is None:
            then(ranks)
        else:
            call_after(self._network.env, delays[ranks], ranks, then)

    def _row(self, number: int) -> _Row | None:
        """Return the row of that number, or None behind the last one."""
        if number == self._num_pulled:
            step = next(self._steps, None)
            if step is None:
                return None
            self._rows[number] = self._pull(number, step)
            self._num_pulled += 1
        return self._rows[number]

    def _pull(self, number: int, step: Step) -> _Row:
        if self._pattern is None or not self._pattern.fits(step):
            self._pattern = Pattern(step, len(self._hosts))
            self._known = {}
        nbytes, some = self._sizes(self._pattern, step)
        name = b"all" if some is None else some.tobytes()
        if name not in self._known:
            source, destination = self._pattern.source, self._pattern.destination
            if some is not None:
                source, destination = source[some], destination[some]
            self._known = {name: _Messages(self._network, self._hosts, source, destination)}
        messages = self._known[name]
        pause = reducing = None
        if self._pauses is not None:
            pause = self._pauses.next_row(messages.per_rank)
            reduced = partial(reduced_nbytes, step, len(self._hosts), self._chunking)
            reducing = self._pauses.reduction_row(reduced)
        return _Row(number, messages, nbytes, pause, reducing)

    def _sizes(self, pattern: Pattern, step: Step) -> tuple[int | Int64Array, Int64Array | None]:
        """Return the sizes of the messages that are not empty, and which these are; None: all."""
        sizes = pattern.nbytes(step, self._chunking)
        if isinstance(sizes, MostlyEqual):
            if sizes.common and not sizes.others:
                return sizes.common, None
            sizes = sizes.over(len(pattern.source))
        if sizes.all():
            return sizes, None
        some = np.flatnonzero(sizes)
        return sizes[some], some
