"""Mailboxes: messages from one rank to another, in order, without locks.

A mailbox is a ring of slots in the part of the sender, who alone fills them, as the receiver alone empties
them.  A slot says under which fingerprint a message was sent, how long it is and where it lies: a small
one in the slot's own room, another in the sender's arena.  The word that says whether a slot is full
is written last.

Who has posted the receive of a message says so, in his own part: he writes down the number of the message.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Sequence

import torch

from collectives.transports.shared_memory.arena import Arena, release
from collectives.transports.shared_memory.doorbell import ring
from collectives.transports.shared_memory.segment import LINE, WORD, Part

SLOTS = 32
SMALL = 8192
"""Bytes up to which a message lies in its slot."""

_PAGE = 4096
_MAILBOX = _PAGE + SLOTS * SMALL
_SLOT = struct.Struct(
    "<qqqq"
)  # fingerprint, start, bytes, number; behind the word that says whether it is full

UNMATCHED = 512
"""Messages to a rank that may be on their way, of which it has posted no receive."""


def _matches_start(world_size: int, peer: int) -> int:
    """Return where a part says which messages from *peer* have been matched."""
    return _PAGE + world_size * _MAILBOX + peer * UNMATCHED * WORD


def arena_start(world_size: int) -> int:
    """Return where the arena of a part begins."""
    return _matches_start(world_size, world_size)


class Outbox:
    """The sender's side of the mailbox from *rank* to *peer*.

    Attributes:
        waiting: messages for which there was no room yet.
        unmatched: numbers of messages that may not have met a receive, by fingerprint.
    """

    def __init__(self, parts: Sequence[Part], arena: Arena, rank: int, peer: int) -> None:
        self.own = parts[rank]
        self.other = parts[peer]
        self.arena = arena
        self.start = _PAGE + peer * _MAILBOX
        self.matches = _matches_start(len(parts), rank) // WORD
        self.sent = 0
        self.all_matched_up_to = 0
        self.waiting: deque[tuple[int, torch.Tensor, int]] = deque()
        self.unmatched: dict[int, deque[int]] = {}

    def send(self, fingerprint: int, data: torch.Tensor, nbytes: int) -> None:
        """Send *data*, now or when there is room; until then it must not be written to."""
        if self.waiting or not self._post(fingerprint, data, nbytes):
            self.waiting.append((fingerprint, data, nbytes))

    def flush(self) -> None:
        """Send what waits, as far as there is room."""
        while self.waiting and self._post(*self.waiting[0]):
            self.waiting.popleft()

    def all_matched(self, fingerprint: int) -> bool:
        """Return whether all messages under *fingerprint* have met a receive."""
        numbers = self.unmatched.get(fingerprint)
        if numbers is None:
            return True
        words = self.other.words
        while numbers and words[self.matches + numbers[0] % UNMATCHED] == numbers[0]:
            numbers.popleft()
        if not numbers:
            del self.unmatched[fingerprint]
        return not numbers

    def _post(self, fingerprint: int, data: torch.Tensor, nbytes: int) -> bool:
        number = self.sent + 1
        slot = self.start + number % SLOTS * LINE
        words = self.own.words
        if words[slot // WORD] or (number - self.all_matched_up_to > UNMATCHED and not self._look_back()):
            return False
        small = nbytes <= SMALL
        place = self.start + _PAGE + number % SLOTS * SMALL if small else self.arena.allocate(nbytes)
        self.own.write(place, data, nbytes)
        _SLOT.pack_into(self.own.memory, slot + WORD, fingerprint, place, nbytes, number)
        words[slot // WORD] = 1
        self.sent = number
        numbers = self.unmatched.get(fingerprint)
        if numbers is None:
            self.unmatched[fingerprint] = deque((number,))
        else:
            numbers.append(number)
        ring(self.other)
        return True

    def _look_back(self) -> bool:
        """See up to which number all messages have been matched; return whether there is room for another."""
        for fingerprint in list(self.unmatched):
            self.all_matched(fingerprint)
        oldest = min((numbers[0] for numbers in self.unmatched.values()), default=self.sent + 1)
        self.all_matched_up_to = oldest - 1
        return self.sent + 1 - self.all_matched_up_to <= UNMATCHED


class Arrived:
    """A message that has arrived: where it lies, until it is released."""

    __slots__ = ("copy", "nbytes", "number", "part", "start")

    def __init__(self, part: Part, start: int, nbytes: int, copy: torch.Tensor | None, number: int) -> None:
        self.part = part
        self.number = number
        self.start = start
        self.nbytes = nbytes
        self.copy = copy

    def view(self, dtype: torch.dtype) -> torch.Tensor:
        """Return it as elements of *dtype*."""
        if self.copy is not None:
            return self.copy.view(dtype)
        return self.part.view(self.start, self.nbytes, dtype)

    def release(self) -> None:
        """Give its memory back to the sender."""
        if self.copy is None:
            release(self.part, self.start)


class Inbox:
    """The receiver's side of the mailbox from *peer* to *rank*."""

    def __init__(self, parts: Sequence[Part], rank: int, peer: int) -> None:
        self.own = parts[rank]
        self.part = parts[peer]
        self.start = _PAGE + rank * _MAILBOX
        self.matches = _matches_start(len(parts), peer) // WORD
        self.taken = 0
        self.arrived: dict[int, deque[Arrived]] = {}
        self.expected: dict[int, deque[Callable[[Arrived], None]]] = {}

    def expect(self, fingerprint: int, deliver: Callable[[Arrived], None]) -> None:
        """Have the next message under *fingerprint* that nobody else expects delivered."""
        here = self.arrived.get(fingerprint)
        if here:
            message = here.popleft()
            if not here:
                del self.arrived[fingerprint]
            self._match(message, deliver)
        else:
            self.expected.setdefault(fingerprint, deque()).append(deliver)

    def poll(self) -> None:
        """Take in what has come."""
        words = self.part.words
        while True:
            slot = self.start + (self.taken + 1) % SLOTS * LINE
            if not words[slot // WORD]:
                return
            fingerprint, start, nbytes, number = _SLOT.unpack_from(self.part.memory, slot + WORD)
            copy = None
            if nbytes <= SMALL:
                copy = torch.empty(nbytes, dtype=torch.uint8)
                self.part.read(start, copy, nbytes)
            words[slot // WORD] = 0
            self.taken = number
            message = Arrived(self.part, start, nbytes, copy, number)
            waiting = self.expected.get(fingerprint)
            if waiting is None:
                self.arrived.setdefault(fingerprint, deque()).append(message)
                continue
            deliver = waiting.popleft()
            if not waiting:
                del self.expected[fingerprint]
            self._match(message, deliver)

    def _match(self, message: Arrived, deliver: Callable[[Arrived], None]) -> None:
        self.own.words[self.matches + message.number % UNMATCHED] = message.number
        ring(self.part)
        deliver(message)
