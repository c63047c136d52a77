"""Launches of coflows: some messages of a coflow that are sent at one time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from sim.network.coflow.coflow import Coflow
from sim.network.launch import Connection
from sim.units import Int64Array

Arrived: TypeAlias = Callable[[Int64Array | None], None]
"""Called with the numbers of messages that have arrived, or None for all that were sent."""

Describe: TypeAlias = Callable[[int], tuple[str, str]]
"""Returns of what collective a message is and which it is, from its number."""


@dataclass(eq=False)
class Attempts:
    """What became of the launches of one sender.

    Attributes:
        num_dissolved: how many were carried as wholes and went on as flows all the same.
    """

    num_dissolved: int = 0


class CoflowLaunch:
    """Messages of a coflow that are sent at one time; a `sim.network.launch.Launch`.

    Args:
        coflow: messages between places of the network's topology.
        nbytes: of every message sent, or of each, shape (m,); at least 1.
        tell: called with the numbers of messages whose last byte has just arrived, or with None for all
            that were sent; once or more, until all have.
        numbers: of the messages to be sent, shape (m,); None: all.
        describe: says what a message is, should a link fail.
        attempts: of the sender, for all its launches; by default this is its only one.
    """

    def __init__(
        self,
        coflow: Coflow,
        nbytes: int | Int64Array,
        tell: Arrived,
        numbers: Int64Array | None = None,
        describe: Describe | None = None,
        attempts: Attempts | None = None,
    ) -> None:
        self.coflow = coflow
        self.nbytes = nbytes
        self.tell = tell
        self.numbers = numbers
        self.attempts = attempts or Attempts()
        self._describe = describe

    def __len__(self) -> int:
        return len(self.coflow) if self.numbers is None else len(self.numbers)

    def messages(self) -> Iterable[tuple[int, Connection, int]]:
        """Return number, connection and bytes of each message."""
        numbers = range(len(self.coflow)) if self.numbers is None else self.numbers.tolist()
        sizes = [self.nbytes] * len(numbers) if isinstance(self.nbytes, int) else self.nbytes.tolist()
        connections = self.coflow.connections
        return [(number, connections[number], size) for number, size in zip(numbers, sizes, strict=True)]

    def arrived(self, numbers: list[int]) -> None:
        """Tell that the messages of these *numbers* have arrived, just now."""
        self.tell(np.array(numbers))

    def describe(self, number: int) -> tuple[str, str] | None:
        """Return of what collective a message is and which it is, if that is known."""
        return None if self._describe is None else self._describe(number)
