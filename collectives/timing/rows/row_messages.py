"""Messages of rows that move: made row by row, and under way, who has come and who still waits for what."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any, Protocol, TypeVar

import numpy as np

from collectives.program import Algorithm
from collectives.program.chunking import Chunking
from collectives.timing.rows.pattern import reduced_nbytes
from collectives.timing.rows.repeated_rows import sized_rows
from collectives.timing.rows.sizes import Sizes, without_empty
from sim.network.coflow import Coflow
from sim.scenario.step_overheads import StepOverheads
from sim.topology import Topology
from sim.units import Int64Array

MANY = 64
"""Ranks from which on those that take part in a row are not listed one by one."""


class Messages(Protocol):
    """Messages between the same ranks, row after row: *per_rank* is how many each rank sends and receives."""

    per_rank: Int64Array


M = TypeVar("M", bound=Messages)


def moving_rows(
    algorithm: Algorithm,
    hosts: Int64Array,
    chunking: Chunking,
    overheads: StepOverheads | None,
    topology: Callable[[], Topology],
    messages_of: Callable[[Coflow, Int64Array, Int64Array], M],
) -> Iterator[tuple[M, Sizes, Int64Array | None, Int64Array | None]]:
    """Yield of each row the messages that are not empty, their sizes, and what ranks add to their time.

    That is the pause of each rank before it, and how long each reduces at its end, None where nobody does.

    Args:
        algorithm: the program of every rank; its rows match.
        hosts: the place of each rank.
        chunking: how the program divides the buffer.
        overheads: what ranks add to the time of the network, if anything.
        topology: returns the network, as routes are when a pattern begins.
        messages_of: makes messages of a coflow, their sources and their destinations.
    """
    num_ranks, pattern = len(hosts), None
    for sized in sized_rows(algorithm, num_ranks, chunking, each=True):
        source, destination = sized.pattern.source, sized.pattern.destination
        if sized.pattern is not pattern:
            pattern = sized.pattern
            coflow = Coflow.between(topology(), hosts[source], hosts[destination], pattern.channel)
            whole = messages_of(coflow, source, destination)
        messages, (some, nbytes) = whole, without_empty(sized.nbytes, len(source))
        if some is not None:
            messages = messages_of(coflow.select(some), source[some], destination[some])
        pause = reducing = None
        if overheads is not None:
            pause = overheads.next_row(messages.per_rank, partial(_ends, source, destination, some))
            reducing = overheads.reduction_row(partial(reduced_nbytes, sized.step, num_ranks, chunking))
        yield messages, nbytes, pause, reducing


def _ends(
    source: Int64Array, destination: Int64Array, some: Int64Array | None
) -> tuple[Int64Array, Int64Array]:
    return (source, destination) if some is None else (source[some], destination[some])


class RowMessages:
    """Messages between the same ranks, row after row.

    Attributes:
        coflow: they themselves, on their way.
        source: rank that sends each.
        destination: rank that receives it.
        ranks: those that send or receive one, in order.
        per_rank: how many each rank does.
        everybody: whether all ranks take part.
    """

    def __init__(self, num_ranks: int, coflow: Coflow, source: Int64Array, destination: Int64Array) -> None:
        self.coflow = coflow
        self.source, self.destination = source, destination
        self.per_rank: Int64Array = np.bincount(np.concatenate([source, destination]), minlength=num_ranks)
        self.ranks = np.flatnonzero(self.per_rank)
        self.everybody = len(self.ranks) == num_ranks

    @cached_property
    def ends(self) -> list[tuple[int, int]]:
        """Source and destination of each."""
        return list(zip(self.source.tolist(), self.destination.tolist(), strict=True))


class ActiveRow:
    """A step of all ranks.

    Attributes:
        number: of the step.
        messages: those that move.
        nbytes: of all, or of each.
        pause: of each rank before it, if ranks pause.
        reducing: how long each rank reduces at its end, if that takes time.
        ranks: that take part, by a message or a reduction.
        takes_part: for each rank whether it is one of them; None: all are.
        num_to_come: how many of them have yet to leave it.
    """

    def __init__(
        self,
        number: int,
        messages: RowMessages,
        nbytes: int | Int64Array,
        pause: Int64Array | None,
        reducing: Int64Array | None,
    ) -> None:
        self.number = number
        self.messages = messages
        self.nbytes = nbytes
        self.pause = pause
        self.reducing = reducing
        self.ranks = messages.ranks
        self.takes_part: Any = None
        if not messages.everybody:
            self.takes_part = messages.per_rank > 0
            if reducing is not None:
                self.takes_part |= reducing > 0
                self.ranks = np.flatnonzero(self.takes_part)
        self.num_to_come = len(self.ranks)

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
        here = np.zeros(len(self.left), dtype=np.int64)
        here[ranks] = 1
        before = self.waits_for.copy()
        np.subtract(before, here[self.messages.source] + here[self.messages.destination], out=self.waits_for)
        return np.flatnonzero((before > 0) & (self.waits_for == 0))

    def arrive(self, numbers: Int64Array) -> Int64Array:
        """Note that messages have arrived; return the ranks that wait for no more."""
        ends = np.concatenate([self.messages.source[numbers], self.messages.destination[numbers]])
        before = self.left.copy()
        np.subtract.at(self.left, ends, 1)
        return np.flatnonzero((before > 0) & (self.left == 0))
