"""Arena: memory of a rank for messages on their way, given back when they have been read.

In front of a message stands its number, until whoever reads it has done so and writes 0.  Blocks are of
lengths that are powers of two, and are used again, so their pages are warm.
"""

from __future__ import annotations

from collections import deque

from collectives.transports.shared_memory.segment import LINE, SIZE, WORD, Part

_LEAST = 1 << 16


class Arena:
    """The memory of *part* from *start* on."""

    def __init__(self, part: Part, start: int) -> None:
        self.part = part
        self.end = start
        self.free: dict[int, list[int]] = {}
        self.live: deque[tuple[int, int]] = deque()
        self.number = 0

    def allocate(self, nbytes: int) -> int:
        """Return where *nbytes* may be written for a message.

        Raises:
            MemoryError: messages that nobody reads have used up all addresses.
        """
        words = self.part.words
        while self.live and not words[self.live[0][0] // WORD]:
            start, length = self.live.popleft()
            self.free.setdefault(length, []).append(start)
        length = max(_LEAST, 1 << (nbytes + LINE - 1).bit_length())
        spare = self.free.get(length)
        if spare:
            start = spare.pop()
        else:
            start = self.end
            self.end += length
            if self.end > SIZE:
                raise MemoryError(f"{SIZE >> 30} GiB of messages wait to be read")
        self.number += 1
        words[start // WORD] = self.number
        self.live.append((start, length))
        return start + LINE


def is_read(part: Part, start: int, number: int) -> bool:
    """Return whether the message of this *number*, at *start* in *part*, has been read."""
    return part.words[(start - LINE) // WORD] != number


def release(part: Part, start: int) -> None:
    """Say that the message at *start* in *part* has been read."""
    part.words[(start - LINE) // WORD] = 0
