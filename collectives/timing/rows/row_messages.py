"""Messages of a row under way: who has come to the row, and who still waits for what."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from sim.network.coflow import Coflow
from sim.units import Int64Array

MANY = 64
"""Ranks from which on those that take part in a row are not listed one by one."""


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

    def __init__(
        self,
        coflow: Coflow,
        source: Int64Array,
        destination: Int64Array,
        num_ranks: int,
    ) -> None:
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
