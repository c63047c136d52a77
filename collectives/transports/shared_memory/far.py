"""Mailboxes between hosts: messages over Gloo, for ranks that share no memory.

They are used as those in memory are (`collectives.transports.shared_memory.mailbox`), so steps know no
difference.  What is sent is copied at once, since Gloo reads it later; a receive is posted when a message is
expected, as Gloo must know where it goes.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from collectives.transports.gloo_messages import CHECKING, Receiving, Sending, close_connections, sent, tag_of
from collectives.transports.shared_memory.arena import Outgoing
from collectives.transports.turn import Turn

_SECONDS = 1.0  # for Gloo to hand over a message that has arrived, and between two checks at most
_PAUSE = 0.02  # between the first two checks
_LEAST = 1 << 6  # bytes of a block


class Distance:
    """What all mailboxes of a rank to other hosts have in common.

    Args:
        group: of Gloo, between all ranks.
        prefix: keeps messages of several communicators on one group apart; equal on all ranks.
    """

    def __init__(self, group: dist.ProcessGroup, prefix: str) -> None:
        self.group = group
        self.prefix = prefix
        self.spare: dict[int, list[torch.Tensor]] = {}
        self.lent: dict[int, torch.Tensor] = {}
        self.checks: dict[int, tuple[float, float]] = {}
        self.asked: list[Any] = []
        self.turn = Turn()

    def close(self) -> None:
        """Close all connections, so that what waits here, or for this rank, fails at once."""
        close_connections(self.group)

    def check(self, peer: int) -> None:
        """Check that the connection to *peer* is there, less and less often the longer it is.

        Gloo says so when it is asked for a message, and this one is never sent.

        Raises:
            ConnectionError: it is closed.
        """
        now = time.monotonic()
        again, pause = self.checks.get(peer, (now, _PAUSE))
        if now < again:
            return
        self.checks[peer] = now + pause, min(2 * pause, _SECONDS)
        token = torch.empty(1, dtype=torch.uint8)
        try:
            self.asked.append((token, self.group.recv([token], peer, CHECKING)))
        except RuntimeError as error:
            raise ConnectionError(f"the connection to rank {peer} is closed") from error

    def borrow(self, nbytes: int) -> torch.Tensor:
        """Return memory of *nbytes* bytes, in a block whose length is a power of two; see `give_back`."""
        length = max(_LEAST, 1 << (nbytes - 1).bit_length())
        spare = self.spare.get(length)
        block = spare.pop() if spare else torch.empty(length, dtype=torch.uint8)
        self.lent[block.data_ptr()] = block
        return block[:nbytes]

    def give_back(self, raw: torch.Tensor) -> None:
        """Keep the block of *raw*, which was borrowed, for later messages."""
        block = self.lent.pop(raw.data_ptr())
        self.spare.setdefault(block.nbytes, []).append(block)


class FarOutbox:
    """The sender's side of the way to *peer*; as `collectives.transports.shared_memory.mailbox.Outbox`.

    Attributes:
        waiting: nothing, as Gloo takes as much as there is.
        sends: those under way and the memory that they are in, by fingerprint.
    """

    def __init__(self, distance: Distance, peer: int) -> None:
        self.distance = distance
        self.peer = peer
        self.waiting: dict[int, deque[Outgoing]] = {}
        self.sends: dict[int, list[tuple[Sending, torch.Tensor]]] = {}

    def send(self, fingerprint: int, outgoing: Outgoing) -> None:
        """Send a copy of *outgoing*."""
        outgoing.readers -= 1  # it is not read where it is
        raw = self.distance.borrow(outgoing.nbytes)
        raw.copy_(outgoing.data.view(torch.uint8))
        sending = sent(self.distance.group, raw, self.peer, tag_of(self.distance.prefix, fingerprint), (0, 0))
        self.sends.setdefault(fingerprint, []).append((sending, raw))

    def flush(self) -> bool:
        """Return that nothing waited."""
        return False

    def is_unmatched(self, fingerprint: int) -> bool:
        """Return whether messages under *fingerprint* have, as far as is known, not been taken."""
        sends = self.sends.get(fingerprint, ())
        if not all(sending.over for sending, _ in sends):
            return True
        self._forget(fingerprint)
        return False

    def observe(self, fingerprint: int, timeout: float) -> None:
        """Have it noticed when the messages under *fingerprint* have been taken."""
        for sending, _ in self.sends.get(fingerprint, ()):
            sending.observe(timeout)

    def await_sends(self, fingerprint: int, deadline: float) -> None:
        """Return when the messages under *fingerprint* have been taken.

        Raises:
            TimeoutError: they have not been at the *deadline* (`time.monotonic`).
            ConnectionError: the connection is closed.
        """
        for sending, _ in self.sends.get(fingerprint, ()):
            with self.distance.turn.given_away:
                sending.wait(deadline)
        self._forget(fingerprint)

    def _forget(self, fingerprint: int) -> None:
        for _, raw in self.sends.pop(fingerprint, ()):
            self.distance.give_back(raw)


class FarMessage:
    """A message from another host; as `collectives.transports.shared_memory.mailbox.Arrived`.

    Attributes:
        copy: nothing, as it is read where it has arrived.
        is_lent: that it takes none of its sender's room while it waits to be read.
    """

    __slots__ = ("distance", "raw")

    copy = None
    is_lent = True

    def __init__(self, distance: Distance, raw: torch.Tensor) -> None:
        self.distance = distance
        self.raw: torch.Tensor | None = raw

    def view(self, dtype: torch.dtype) -> torch.Tensor:
        """Return it as elements of *dtype*."""
        assert self.raw is not None, "it has been read"
        return self.raw.view(dtype)

    def release(self) -> None:
        """Give its memory back, as it has been read."""
        if self.raw is not None:
            self.distance.give_back(self.raw)
            self.raw = None


class FarInbox:
    """The receiver's side of the way from *peer*; as `collectives.transports.shared_memory.mailbox.Inbox`.

    Attributes:
        expected: receives under way and to whom their messages go, by fingerprint.
    """

    def __init__(self, distance: Distance, peer: int) -> None:
        self.distance = distance
        self.peer = peer
        self.expected: dict[int, deque[tuple[Receiving, Callable[[Any], None]]]] = {}

    def expect(self, fingerprint: int, nbytes: int, deliver: Callable[[Any], None]) -> None:
        """Have the next message under *fingerprint* that nobody else expects, of *nbytes*, delivered."""
        raw = self.distance.borrow(nbytes)
        receiving = Receiving(self.distance.group, raw, self.peer, tag_of(self.distance.prefix, fingerprint))
        self.expected.setdefault(fingerprint, deque()).append((receiving, deliver))

    def poll(self) -> bool:
        """Deliver what has come; return whether there was anything."""
        moved = False
        for fingerprint in list(self.expected):
            waiting = self.expected[fingerprint]
            while waiting and waiting[0][0].arrived():
                self._deliver(fingerprint, time.monotonic() + _SECONDS)
                moved = True
        return moved

    def _deliver(self, fingerprint: int, deadline: float) -> None:
        waiting = self.expected[fingerprint]
        receiving, deliver = waiting[0]
        receiving.wait(deadline)
        waiting.popleft()
        if not waiting:
            del self.expected[fingerprint]
        deliver(FarMessage(self.distance, receiving.data))
