"""Mailroom: all mailboxes of a rank, and what it knows of the others."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from collectives.transports.shared_memory import doorbell
from collectives.transports.shared_memory.arena import Arena
from collectives.transports.shared_memory.far import Distance, FarInbox, FarOutbox
from collectives.transports.shared_memory.loans import Loans
from collectives.transports.shared_memory.mailbox import Inbox, Outbox, arena_start
from collectives.transports.shared_memory.segment import LINE, WORD, Segment
from collectives.transports.turn import Turn

_FAILED = 2 * LINE // WORD
"""The word of a rank's memory in which it says that it has failed."""


class Mailroom:
    """The mailboxes of this rank: in *segment*, and at a *distance* where that has no part of a rank.

    Attributes:
        arena: memory for messages on their way.
        outboxes: by receiver.
        inboxes: by sender.
        loans: messages that lie where their sender has them.
        far: the ranks on other hosts.
        broken: why nothing more will come, if that is so.
        turn: which a thread has that touches any of this.
        num_sleeping: threads of this rank that sleep until a message comes.
        patience: how often this rank looks before it sleeps.
    """

    def __init__(self, segment: Segment, distance: Distance | None = None) -> None:
        self.segment = segment
        self.turn = Turn()
        self.num_sleeping = 0
        self.patience = doorbell.Patience()
        rank = segment.rank
        near = [peer for peer in segment.parts if peer != rank]
        self.arena = Arena(segment.own, arena_start(segment.world_size))
        self.outboxes: dict[int, Outbox | FarOutbox] = {
            peer: Outbox(segment.parts, self.arena, rank, peer) for peer in near
        }
        self.inboxes: dict[int, Inbox | FarInbox] = {peer: Inbox(segment.parts, rank, peer) for peer in near}
        self.distance = distance
        self.far = segment.far
        if self.far:
            assert distance is not None, "messages to other hosts need a way"
            self.outboxes |= {peer: FarOutbox(distance, peer) for peer in self.far}
            self.inboxes |= {peer: FarInbox(distance, peer) for peer in self.far}
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
        if moved and self.num_sleeping:
            doorbell.ring(self.segment.own)  # what has come may be what another thread sleeps for
        return moved

    def share_turn(self, turn: Turn) -> None:
        """Give away *turn*, of the queue that this is of, wherever a thread blocks."""
        self.turn = turn
        if self.distance is not None:
            self.distance.turn = turn

    def sleep(self, rings: int) -> None:
        """Sleep for a moment, unless the bell has rung since *rings* was heard, without the turn."""
        self.num_sleeping += 1
        try:
            with self.turn.given_away:
                doorbell.sleep(self.segment.own, rings, briefly=bool(self.far))
        finally:
            self.num_sleeping -= 1

    def awake(self) -> None:
        """Say that this rank does not sleep, unless another of its threads does."""
        if not self.num_sleeping:
            doorbell.awake(self.segment.own)

    def gone(self) -> Mapping[int, str]:
        """Return the ranks whose processes have ended, and what became of each."""
        return dict.fromkeys(self.segment.ended(), "its process has ended")

    def far_outboxes(self) -> Iterator[FarOutbox]:
        """Yield those to ranks on other hosts."""
        for peer in self.far:
            outbox = self.outboxes[peer]
            assert isinstance(outbox, FarOutbox)
            yield outbox

    def check_far(self, peers: Collection[int]) -> None:
        """Check that the connections to those of *peers* that are on other hosts are there.

        Raises:
            ConnectionError: one is closed.
        """
        for peer in self.far:
            if peer in peers and self.distance is not None:
                self.distance.check(peer)

    def look_around(self) -> None:
        """See whether another rank has said in its memory that it has failed."""
        if any(part.words[_FAILED] for part in self.segment.parts.values()):
            self.break_off()

    def break_off(self) -> None:
        """End the waits of this rank and of those that wait for it, and say so in its memory."""
        self.segment.own.words[_FAILED] = 1
        self.broken = "broken off: another rank has failed"
        if self.distance is not None:
            self.distance.close()
