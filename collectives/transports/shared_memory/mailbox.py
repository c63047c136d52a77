"""Mailboxes: messages from one rank to another, in order, without locks.

A mailbox is a ring of slots in the part of the sender, who alone fills them, as the receiver alone empties
them.  A slot says under which fingerprint a message was sent, how long it is and where it lies: a small
one in the slot's own room, another in the sender's arena, or where the sender has it if that is shared.  The
word that says whether a slot is full is written last.  Whoever looks takes in all that has come, so a
mailbox is never full for long.

A message has a mark, a word of the sender's memory which the receiver clears when the message has met its
receive and has been read.  It does so at once and needs no room for it, so it may then leave.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Mapping

import torch

from collectives.transports.shared_memory.arena import Arena, Mark, Outgoing
from collectives.transports.shared_memory.doorbell import ring
from collectives.transports.shared_memory.segment import LINE, WORD, Part

SLOTS = 64
SMALL = 8192
"""Bytes up to which a message lies in its slot."""

UNREAD = 4
"""Copied messages under one fingerprint that may wait to be read: few, so that they stay in the cache."""

_PAGE = 4096
_MAILBOX = _PAGE + SLOTS * SMALL
_SLOT = struct.Struct("<qqqqq")  # fingerprint, start, bytes, mark, lent; behind the word that says it is full


def arena_start(world_size: int) -> int:
    """Return where the arena of a part begins."""
    return _PAGE + world_size * _MAILBOX


class Outbox:
    """The sender's side of the mailbox from *rank* to *peer*.

    Attributes:
        waiting: messages for which there was no room yet, by fingerprint.
        unread: marks of those that have been announced and have not met a receive, by fingerprint.
        copied: as many of them as lie in the arena.
    """

    def __init__(self, parts: Mapping[int, Part], arena: Arena, rank: int, peer: int) -> None:
        self.own = parts[rank]
        self.bell = parts[peer]
        self.arena = arena
        self.peer = peer
        self.start = _PAGE + peer * _MAILBOX
        self.number = 0
        self.waiting: dict[int, deque[Outgoing]] = {}
        self.unread: dict[int, deque[Mark]] = {}
        self.copied: dict[int, list[Mark]] = {}
        self.free: list[int] = []

    def send(self, fingerprint: int, outgoing: Outgoing) -> None:
        """Send *outgoing*, now or when there is room."""
        if fingerprint in self.waiting:
            self.waiting[fingerprint].append(outgoing)
        elif not self._post(fingerprint, outgoing):
            self.waiting[fingerprint] = deque((outgoing,))

    def flush(self) -> bool:
        """Send what waits, as far as there is room; return whether there was any."""
        before = self.number
        for fingerprint, messages in list(self.waiting.items()):
            while messages and self._post(fingerprint, messages[0]):
                messages.popleft()
            if not messages:
                del self.waiting[fingerprint]
        return self.number != before

    def is_unmatched(self, fingerprint: int) -> bool:
        """Return whether messages under *fingerprint* have not met their receives."""
        if fingerprint in self.waiting:
            return True
        unread = self.unread.get(fingerprint)
        if unread is None:
            return False
        while unread and not self.arena.is_unread(unread[0]):
            self.free.append(unread.popleft().place)
        if unread:
            return True
        del self.unread[fingerprint]
        self.copied.pop(fingerprint, None)
        return False

    def _post(self, fingerprint: int, outgoing: Outgoing) -> bool:
        slot = self.start + self.number % SLOTS * LINE
        words = self.own.words
        if words[slot // WORD]:
            return False
        copied = None
        if outgoing.nbytes <= SMALL:
            place = self.start + _PAGE + self.number % SLOTS * SMALL
            self.own.write(place, outgoing.data, outgoing.nbytes)
        else:
            copied = self.copied.setdefault(fingerprint, [])
            copied[:] = filter(self.arena.is_unread, copied)
            if len(copied) >= UNREAD:
                return False
            self.arena.place(outgoing)
            place = outgoing.start
        self.number += 1
        if not self.free:
            self.free = self.arena.words()
        mark = Mark(self.free.pop(), self.number)
        outgoing.marks.append((self.peer, mark))
        words[mark.place // WORD] = mark.number
        self.unread.setdefault(fingerprint, deque()).append(mark)
        if copied is not None and not outgoing.is_lent:
            copied.append(mark)
        _SLOT.pack_into(
            self.own.memory, slot + WORD, fingerprint, place, outgoing.nbytes, mark.place, outgoing.is_lent
        )
        words[slot // WORD] = 1
        ring(self.bell)
        return True


class Arrived:
    """A message that has arrived: where it lies, until it has been read.

    Attributes:
        is_lent: whether it lies where the sender has it, so that it takes no room while it waits to be read.
    """

    __slots__ = ("copy", "is_lent", "mark", "nbytes", "part", "start")

    def __init__(
        self, part: Part, start: int, nbytes: int, mark: int, is_lent: bool, copy: torch.Tensor | None
    ) -> None:
        self.part = part
        self.start = start
        self.nbytes = nbytes
        self.mark = mark
        self.is_lent = is_lent
        self.copy = copy

    def view(self, dtype: torch.dtype) -> torch.Tensor:
        """Return it as elements of *dtype*."""
        if self.copy is not None:
            return self.copy.view(dtype)
        return self.part.view(self.start, self.nbytes, dtype)

    def release(self) -> None:
        """Say to the sender that it has been read."""
        if self.mark:
            self.part.words[self.mark // WORD] = 0
            ring(self.part)
            self.mark = 0

    def keep(self) -> None:
        """Copy it, so that it is released."""
        self.copy = self.view(torch.uint8).clone()
        self.release()


class Inbox:
    """The receiver's side of the mailbox from *peer* to *rank*."""

    def __init__(self, parts: Mapping[int, Part], rank: int, peer: int) -> None:
        self.part = parts[peer]
        self.start = _PAGE + rank * _MAILBOX
        self.number = 0
        self.arrived: dict[int, deque[Arrived]] = {}
        self.expected: dict[int, deque[Callable[[Arrived], None]]] = {}

    def expect(self, fingerprint: int, nbytes: int, deliver: Callable[[Arrived], None]) -> None:
        """Have the next message under *fingerprint* that nobody else expects, of *nbytes*, delivered."""
        here = self.arrived.get(fingerprint)
        if here:
            message = here.popleft()
            if not here:
                del self.arrived[fingerprint]
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
            fingerprint, start, nbytes, mark, is_lent = _SLOT.unpack_from(self.part.memory, slot + WORD)
            copy = None
            if nbytes <= SMALL:
                copy = torch.empty(nbytes, dtype=torch.uint8)
                self.part.read(start, copy, nbytes)
            words[slot // WORD] = 0
            self.number += 1
            self._deliver(fingerprint, Arrived(self.part, start, nbytes, mark, bool(is_lent), copy))

    def _deliver(self, fingerprint: int, message: Arrived) -> None:
        waiting = self.expected.get(fingerprint)
        if waiting is None:
            self.arrived.setdefault(fingerprint, deque()).append(message)
            return
        deliver = waiting.popleft()
        if not waiting:
            del self.expected[fingerprint]
        deliver(message)
