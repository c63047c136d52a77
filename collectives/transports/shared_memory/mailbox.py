"""Mailboxes: messages from one rank to another, in order, without locks.

A mailbox is a ring of slots in the part of the sender, who alone fills them, as the receiver alone empties
them.  A slot says under which fingerprint a message was sent, how long it is and where it lies: a small
one in the slot's own room, another in the sender's arena.  The word that says whether a slot is full
is written last.  Whoever looks takes in all that has come, so a mailbox is never full for long.

The receiver answers a message that has met its receive with a notice, which is a slot by itself.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Sequence

import torch

from collectives.transports.shared_memory.arena import Arena, Outgoing
from collectives.transports.shared_memory.doorbell import ring
from collectives.transports.shared_memory.segment import LINE, WORD, Part

SLOTS = 64
SMALL = 8192
"""Bytes up to which a message lies in its slot."""

UNREAD = 4
"""Large messages under one fingerprint that may wait to be read: few, so that they stay in the cache."""

_PAGE = 4096
_MAILBOX = _PAGE + SLOTS * SMALL
_SLOT = struct.Struct("<qqqq")  # fingerprint, start, bytes, mark; behind the word that says it is full
_NOTICE = -1  # bytes of a notice


def arena_start(world_size: int) -> int:
    """Return where the arena of a part begins."""
    return _PAGE + world_size * _MAILBOX


class Outbox:
    """The sender's side of the mailbox from *rank* to *peer*.

    Attributes:
        waiting: messages for which there was no room yet, by fingerprint.
        unmatched: how many messages have not met a receive, by fingerprint.
    """

    def __init__(self, parts: Sequence[Part], arena: Arena, rank: int, peer: int) -> None:
        self.own = parts[rank]
        self.bell = parts[peer]
        self.arena = arena
        self.start = _PAGE + peer * _MAILBOX
        self.number = 0
        self.waiting: dict[int, deque[Outgoing]] = {}
        self.notices: deque[int] = deque()
        self.unmatched: dict[int, int] = {}
        self.unread: dict[int, deque[tuple[int, int]]] = {}

    def send(self, fingerprint: int, outgoing: Outgoing) -> None:
        """Send *outgoing*, now or when there is room."""
        self.unmatched[fingerprint] = self.unmatched.get(fingerprint, 0) + 1
        if fingerprint in self.waiting:
            self.waiting[fingerprint].append(outgoing)
        elif not self._post(fingerprint, outgoing):
            self.waiting[fingerprint] = deque((outgoing,))

    def answer(self, fingerprint: int) -> None:
        """Send a notice that a message under *fingerprint* has met its receive."""
        if self.notices or self._slot_is_full():
            self.notices.append(fingerprint)
        else:
            self._fill(fingerprint, 0, _NOTICE, 0)

    def take_notice(self, fingerprint: int) -> None:
        """Take in that a message under *fingerprint* has met its receive."""
        left = self.unmatched[fingerprint] - 1
        if left:
            self.unmatched[fingerprint] = left
        else:
            del self.unmatched[fingerprint]
            self.unread.pop(fingerprint, None)

    def flush(self) -> bool:
        """Send what waits, as far as there is room; return whether there was any."""
        before = self.number
        while self.notices and not self._slot_is_full():
            self._fill(self.notices.popleft(), 0, _NOTICE, 0)
        for fingerprint, messages in list(self.waiting.items()):
            while messages and self._post(fingerprint, messages[0]):
                messages.popleft()
            if not messages:
                del self.waiting[fingerprint]
        return self.number != before

    def _post(self, fingerprint: int, outgoing: Outgoing) -> bool:
        if self._slot_is_full():
            return False
        if outgoing.nbytes <= SMALL and outgoing.data is not None:
            place = self.start + _PAGE + self.number % SLOTS * SMALL
            self.own.write(place, outgoing.data, outgoing.nbytes)
            self._fill(fingerprint, place, outgoing.nbytes, 0)
            return True
        unread = self.unread.setdefault(fingerprint, deque())
        while unread and self.own.words[unread[0][0] // WORD] != unread[0][1]:
            unread.popleft()
        if len(unread) >= UNREAD:
            return False
        self.arena.write(outgoing)
        mark = outgoing.next_mark()
        unread.append((mark, outgoing.number))
        self._fill(fingerprint, outgoing.start, outgoing.nbytes, mark)
        return True

    def _slot_is_full(self) -> bool:
        """Return whether the receiver has not emptied the next slot."""
        return bool(self.own.words[(self.start + self.number % SLOTS * LINE) // WORD])

    def _fill(self, fingerprint: int, place: int, nbytes: int, mark: int) -> None:
        """Fill the next slot, which is empty."""
        slot = self.start + self.number % SLOTS * LINE
        _SLOT.pack_into(self.own.memory, slot + WORD, fingerprint, place, nbytes, mark)
        self.own.words[slot // WORD] = 1
        self.number += 1
        ring(self.bell)


class Arrived:
    """A message that has arrived: where it lies, until it is released."""

    __slots__ = ("copy", "mark", "nbytes", "part", "start")

    def __init__(self, part: Part, start: int, nbytes: int, mark: int, copy: torch.Tensor | None) -> None:
        self.part = part
        self.start = start
        self.nbytes = nbytes
        self.mark = mark
        self.copy = copy

    def view(self, dtype: torch.dtype) -> torch.Tensor:
        """Return it as elements of *dtype*."""
        if self.copy is not None:
            return self.copy.view(dtype)
        return self.part.view(self.start, self.nbytes, dtype)

    def release(self) -> None:
        """Say to the sender that it has been read."""
        if self.copy is None:
            self.part.words[self.mark // WORD] = 0


class Inbox:
    """The receiver's side of the mailbox from *peer* to *rank*.

    Args:
        parts: of all ranks.
        rank: this rank.
        peer: the sender.
        back: the mailbox by which it is answered.
    """

    def __init__(self, parts: Sequence[Part], rank: int, peer: int, back: Outbox) -> None:
        self.part = parts[peer]
        self.start = _PAGE + rank * _MAILBOX
        self.back = back
        self.number = 0
        self.arrived: dict[int, deque[Arrived]] = {}
        self.expected: dict[int, deque[Callable[[Arrived], None]]] = {}

    def expect(self, fingerprint: int, deliver: Callable[[Arrived], None]) -> None:
        """Have the next message under *fingerprint* that nobody else expects delivered."""
        here = self.arrived.get(fingerprint)
        if here:
            message = here.popleft()
            if not here:
                del self.arrived[fingerprint]
            self.back.answer(fingerprint)
            deliver(message)
        else:
            self.expected.setdefault(fingerprint, deque()).append(deliver)

    def poll(self) -> bool:
        """Take in what has come; return whether there was anything."""
        words, before = self.part.words, self.number
        while True:
            slot = self.start + self.number % SLOTS * LINE
            if not words[slot // WORD]:
                return self.number != before
            fingerprint, start, nbytes, mark = _SLOT.unpack_from(self.part.memory, slot + WORD)
            copy = None
            if 0 < nbytes <= SMALL:
                copy = torch.empty(nbytes, dtype=torch.uint8)
                self.part.read(start, copy, nbytes)
            words[slot // WORD] = 0
            self.number += 1
            if nbytes == _NOTICE:
                self.back.take_notice(fingerprint)
            else:
                self._deliver(fingerprint, Arrived(self.part, start, nbytes, mark, copy))

    def _deliver(self, fingerprint: int, message: Arrived) -> None:
        waiting = self.expected.get(fingerprint)
        if waiting is None:
            self.arrived.setdefault(fingerprint, deque()).append(message)
            return
        deliver = waiting.popleft()
        if not waiting:
            del self.expected[fingerprint]
        self.back.answer(fingerprint)
        deliver(message)
