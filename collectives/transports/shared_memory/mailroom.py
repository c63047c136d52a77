"""Mailroom: all mailboxes of a rank, and what it knows of the others."""

from __future__ import annotations

from collections.abc import Mapping

from collectives.transports.shared_memory.arena import Arena
from collectives.transports.shared_memory.loans import Loans
from collectives.transports.shared_memory.mailbox import Inbox, Outbox, arena_start
from collectives.transports.shared_memory.segment import LINE, WORD, Segment

_FAILED = 2 * LINE // WORD
"""The word of a rank's memory in which it says that it has failed."""


class Mailroom:
    """The mailboxes of this rank in *segment*.

    Attributes:
        arena: memory for messages on their way.
        outboxes: by receiver.
        inboxes: by sender.
        loans: messages that lie where their sender has them.
        broken: why nothing more will come, if that is so.
    """

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        rank, world_size = segment.rank, len(segment.parts)
        peers = [peer for peer in range(world_size) if peer != rank]
        self.arena = Arena(segment.own, arena_start(world_size))
        self.outboxes = {peer: Outbox(segment.parts, self.arena, rank, peer) for peer in peers}
        self.inboxes = {peer: Inbox(segment.parts, rank, peer) for peer in peers}
        self.loans = Loans(self.arena)
        self.broken = ""

    def exchange(self) -> bool:
        """Take in what has come, and send what there is room for; return whether there was anything."""
        moved = False
        for inbox in self.inboxes.values():
            moved = inbox.poll() or moved
        for outbox in self.outboxes.values():
            if outbox.waiting:
                moved = outbox.flush() or moved
        return moved

    def gone(self) -> Mapping[int, str]:
        """Return the ranks whose processes have ended, and what became of each."""
        return dict.fromkeys(self.segment.ended(), "its process has ended")

    def look_around(self) -> None:
        """See whether another rank has said in its memory that it has failed."""
        if any(part.words[_FAILED] for part in self.segment.parts):
            self.break_off()

    def break_off(self) -> None:
        """End the waits of this rank, and say so in its memory."""
        self.segment.own.words[_FAILED] = 1
        self.broken = "broken off: another rank has failed"
