"""Arena: a rank's memory for messages on their way and for tensors, given back when nobody needs them.

Blocks are of lengths that are powers of two, and are used again, so their pages are warm.
"""

from __future__ import annotations

import ctypes
import weakref
from collections import deque
from typing import NamedTuple

import torch

from collectives.transports.shared_memory.segment import SIZE, WORD, Part

_LEAST = 1 << 16


class Mark(NamedTuple):
    """A word in a sender's memory that holds *number* until the receiver has read its message."""

    place: int
    number: int


class Outgoing:
    """What is sent to one rank or to several, which all read it in one place.

    Attributes:
        data: what is sent; nobody may write there before it is copied, or read if it is lent.
        readers: how many receive it.
        start: where it is for others to read, once it is there; 0 before.
        is_lent: whether *data* lies in this rank's part, so that it is read there.
        marks: of the readers to which it has been announced, with their ranks.
    """

    __slots__ = ("data", "is_lent", "marks", "nbytes", "readers", "start")

    def __init__(self, data: torch.Tensor, readers: int = 1) -> None:
        self.data = data
        self.nbytes = data.nbytes
        self.readers = readers
        self.start = 0
        self.is_lent = False
        self.marks: list[tuple[int, Mark]] = []


class Arena:
    """The memory of *part* from *start* on."""

    def __init__(self, part: Part, start: int) -> None:
        self.part = part
        self.end = start
        self.free: dict[int, list[int]] = {}
        self.live: deque[tuple[int, int, Outgoing]] = deque()

    def place(self, outgoing: Outgoing) -> None:
        """Copy *outgoing* to where others can read it, unless they can.

        Raises:
            MemoryError: messages that nobody reads have used up all addresses.
        """
        if outgoing.start:
            return
        while self.live and not self.awaits_readers(self.live[0][2]):
            start, length, _ = self.live.popleft()
            self._give_back(start, length)
        outgoing.start, length = self._block(outgoing.nbytes)
        self.live.append((outgoing.start, length, outgoing))
        self.part.write(outgoing.start, outgoing.data, outgoing.nbytes)

    def lend(self, outgoing: Outgoing) -> bool:
        """Let *outgoing* be read where it is, if it is in this part; return whether it is."""
        there = self.part.place_of(outgoing.data)
        if there is not None:
            outgoing.start, outgoing.is_lent = there, True
        return outgoing.is_lent

    def awaits_readers(self, outgoing: Outgoing) -> bool:
        """Return whether somebody has still to read *outgoing*."""
        unread = any(self.is_unread(mark) for _, mark in outgoing.marks)
        return unread or len(outgoing.marks) < outgoing.readers

    def is_unread(self, mark: Mark) -> bool:
        """Return whether the message that *mark* is of has not been read."""
        return self.part.words[mark.place // WORD] == mark.number

    def words(self) -> list[int]:
        """Return where words for marks are, which are not given back."""
        start, length = self._block(_LEAST)
        return list(range(start, start + length, WORD))

    def tensor(self, nbytes: int) -> torch.Tensor | None:
        """Return memory of this rank that is given back with the tensor, or None if there is not as much."""
        try:
            start, length = self._block(nbytes)
        except MemoryError:
            return None
        block = (ctypes.c_char * nbytes).from_buffer(self.part.memory, start)
        weakref.finalize(block, self._give_back, start, length)
        return torch.frombuffer(block, dtype=torch.uint8)

    def _block(self, nbytes: int) -> tuple[int, int]:
        """Return where a block of at least *nbytes* begins, and its length."""
        length = max(_LEAST, 1 << (nbytes - 1).bit_length())
        spare = self.free.get(length)
        if spare:
            return spare.pop(), length
        if self.end + length > SIZE:
            raise MemoryError(f"{SIZE >> 30} GiB of messages wait to be read")
        self.end += length
        return self.end - length, length

    def _give_back(self, start: int, length: int) -> None:
        self.free.setdefault(length, []).append(start)
