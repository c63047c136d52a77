"""Launches: messages that are sent at one time, who is told of them, and what may carry them as wholes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeAlias

import simpy

from sim.units import Int64Array

About: TypeAlias = Callable[[], tuple[str, str]]
"""Returns of what collective a message is, and which it is, such as ``step 2: rank 3 sends …``."""

Connection: TypeAlias = tuple[int, int, int]
"""Source, destination and channel."""


class Sender(Protocol):
    """Whoever is told what became of messages that it has sent; it numbers them as it likes."""

    def arrived(self, numbers: list[int]) -> None:
        """Take note that the messages of these *numbers* have arrived, just now."""

    def describe(self, number: int) -> tuple[str, str] | None:
        """Return of what collective a message is and which it is, if that is known."""


class Launch(Sender, Protocol):
    """Messages that are sent at one time."""

    def messages(self) -> Iterable[tuple[int, Connection, int]]:
        """Return number, connection and bytes (at least 1) of each message."""


class Accelerator(Protocol):
    """Carries launches as wholes; their messages arrive when they would as flows of the network."""

    def try_launch(self, launch: Launch) -> bool:
        """Carry *launch*, which is sent now, and return True; or return False."""

    def disturb(self, links: Sequence[int]) -> None:
        """Let messages that are carried over *links* go on as flows (`Network.resume`): a flow comes."""

    def leave(self, link: int) -> None:
        """Do so, too, with messages on their way to *link*, and carry none over it any more: it changes."""

    @property
    def link_bytes(self) -> Int64Array:
        """The bytes of all messages that it has launched over each link, int64 of shape (num_links,)."""


class Arrival(simpy.Event):
    """Fires when the last byte of a message has arrived; the `Sender` of that one message."""

    def __init__(self, env: simpy.Environment, about: About | None) -> None:
        super().__init__(env)
        self._about = about

    def arrived(self, numbers: list[int]) -> None:
        """Fire."""
        self.succeed()

    def describe(self, number: int) -> tuple[str, str] | None:
        """Return what was said of the message when it was sent."""
        return None if self._about is None else self._about()
