"""Loans: parts of buffers that others read where they are, so that nobody may write there meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from collectives.transports.shared_memory.arena import Arena, Outgoing
from collectives.transports.shared_memory.prepared import Span, overlap


class Loan(NamedTuple):
    """Elements of a buffer, and the message that they are."""

    span: Span
    outgoing: Outgoing


class Loans:
    """What one rank has lent, by the fingerprint of its messages."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self._loans: dict[int, list[Loan]] = {}

    def lend(self, fingerprint: int, span: Span, outgoing: Outgoing) -> None:
        """Let *outgoing*, which is *span* of a buffer, be read where it is, if that is shared memory."""
        if self.arena.lend(outgoing):
            self._loans.setdefault(fingerprint, []).append(Loan(span, outgoing))

    def under(self, fingerprint: int, written: Sequence[Span]) -> list[Loan]:
        """Return those under *fingerprint* that are still to be read and overlap with *written*."""
        loans = self._loans.get(fingerprint)
        if not loans:
            return []
        loans[:] = self.still(loans)
        return [own for own in loans if any(overlap(own.span, there) for there in written)]

    def still(self, loans: Sequence[Loan]) -> list[Loan]:
        """Return those of *loans* that are still to be read."""
        return [own for own in loans if self.arena.awaits_readers(own.outgoing)]

    def forget(self, fingerprint: int) -> None:
        """Forget those under *fingerprint*, which have been read."""
        self._loans.pop(fingerprint, None)
