"""Arena: memory of a rank for messages on their way, given back when they have been read.

In front of a message stands its number, once for each reader, who writes 0 there when he has read it.  Blocks
are of lengths that are powers of two, and are used again, so their pages are warm.
"""

from __future__ import annotations

from collections import deque

import torch

from collectives.transports.shared_memory.segment import LINE, SIZE, WORD, Part

_LEAST = 1 << 16


class Outgoing:
    """What is sent to one rank or to several, which all read it in one place.

    Attributes:
        data: what is sent, until it is where others can read it; before that, nobody may write there.
        readers: how many receive it.
        start: where it is for others to read, once it is; what lies before are the marks of the readers.
        number: what marks hold until their readers have read it.
        announced: to how many it has been announced.
    """

    __slots__ = ("announced", "data", "nbytes", "number", "readers", "start")

    def __init__(self, data: torch.Tensor, readers: int = 1) -> None:
        self.data: torch.Tensor | None = data
        self.nbytes = data.nbytes
        self.readers = readers
        self.start = 0
        self.number = 0
        self.announced = 0

    def next_mark(self) -> int:
        """Return where the next reader says that he has read it."""
        self.announced += 1
        return self.start - self.announced * WORD


class Arena:
    """The memory of *part* from *start* on."""

    def __init__(self, part: Part, start: int) -> None:
        self.part = part
        self.end = start
        self.free: dict[int, list[int]] = {}
        self.live: deque[tuple[int, int, Outgoing]] = deque()
        self.number = 0

    def write(self, outgoing: Outgoing) -> None:
        """Write *outgoing* where others can read it, unless it is there already.

        Raises:
            MemoryError: messages that nobody reads have used up all addresses.
        """
        data = outgoing.data
        if data is None:
            return
        while self.live and self._is_read(self.live[0][2]):
            start, length, _ = self.live.popleft()
            self.free.setdefault(length, []).append(start)
        marks = -(-outgoing.readers * WORD // LINE) * LINE
        length = max(_LEAST, 1 << (outgoing.nbytes + marks - 1).bit_length())
        spare = self.free.get(length)
        if spare:
            start = spare.pop()
        else:
            start = self.end
            self.end += length
            if self.end > SIZE:
                raise MemoryError(f"{SIZE >> 30} GiB of messages wait to be read")
        self.number += 1
        outgoing.number = self.number
        outgoing.start = start + marks
        words = self.part.words
        for reader in range(1, outgoing.readers + 1):
            words[outgoing.start // WORD - reader] = self.number
        self.live.append((start, length, outgoing))
        self.part.write(outgoing.start, data, outgoing.nbytes)
        outgoing.data = None

    def _is_read(self, outgoing: Outgoing) -> bool:
        words, first = self.part.words, outgoing.start // WORD
        return not any(words[first - reader] for reader in range(1, outgoing.readers + 1))
