"""Steps in flight, and messages that have not met their receives: what a rank waits for."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections import Counter
from functools import partial

from collectives.execution.blame import Messages
from collectives.program import Local, Send
from collectives.program.chunking import Buffer
from collectives.program.render import spell_operation
from collectives.transports.shared_memory import doorbell
from collectives.transports.shared_memory.arena import Outgoing
from collectives.transports.shared_memory.loans import Loan
from collectives.transports.shared_memory.mailbox import SMALL, UNREAD, Arrived
from collectives.transports.shared_memory.mailroom import Mailroom
from collectives.transports.shared_memory.prepared import (
    PreparedStep,
    Span,
    copies,
    land,
    overlap,
    write,
)

_LOOK_AROUND_SECONDS = 0.02
"""Between two looks at whether other processes are still there."""


class InFlight(ABC):
    """What a rank waits for; a `collectives.execution.transport.Handle`."""

    def __init__(self, mailroom: Mailroom) -> None:
        self.mailroom = mailroom

    @abstractmethod
    def is_complete(self) -> bool:
        """Return whether that is so."""

    @abstractmethod
    def awaited(self) -> set[int]:
        """Return the ranks on which it depends."""

    def done(self) -> bool:
        """Take in what has come; return whether this is complete, or will never be."""
        self.mailroom.exchange()
        return self.is_complete() or bool(self.mailroom.broken)

    def observe(self, timeout: float) -> None:  # noqa: B027 not all need to
        """Do nothing: `done` always tells."""

    @abstractmethod
    def doing(self) -> str:
        """Return what is waited for, in words."""

    def wait(self, timeout: float) -> None:
        """Return when this is complete.

        Raises:
            TimeoutError: it is not after *timeout* seconds.
            ConnectionError: a process has ended, or another rank has failed.
        """
        began = time.monotonic()
        if self._look():
            return
        try:
            self._sleep(began, began + timeout)
        finally:
            self.mailroom.awake()

    def _look(self) -> bool:
        """Look for what is awaited, and return whether it has come; not once where several threads wait.

        While it looks a rank keeps its turn: that is less than a millisecond, and to give it away each time
        is dear.
        """
        mailroom = self.mailroom
        if mailroom.turn.is_crowded:
            return False
        looks, has_looked = 0, False
        while looks < mailroom.patience.looks:
            if self.is_complete():
                if has_looked:
                    mailroom.patience.reward()
                return True
            if mailroom.exchange():
                looks = 0
            else:
                looks += 1
                has_looked = True
                os.sched_yield()
        mailroom.patience.disappoint()
        return False

    def _sleep(self, began: float, deadline: float) -> None:
        mailroom, own = self.mailroom, self.mailroom.segment.own
        look_around = 0.0
        while True:
            rings = doorbell.heard(own)
            moved = mailroom.exchange()
            if self.is_complete():
                return
            now = time.monotonic()
            if now >= look_around:
                self._check_peers()
                mailroom.look_around()
                look_around = now + _LOOK_AROUND_SECONDS
            if mailroom.broken:
                raise ConnectionError(mailroom.broken)
            if now > deadline:
                raise TimeoutError(f"Timed out after {now - began:.3g} s: {self.doing()}")
            if not moved:
                mailroom.sleep(rings)

    def _check_peers(self) -> None:
        """Check that those on which this depends are still there.

        Raises:
            ConnectionError: a process has ended, and nothing more of it has come.
        """
        self.mailroom.check_far(self.awaited())
        ended = self.awaited() & self.mailroom.segment.ended()
        if ended:
            self.mailroom.exchange()
            gone = sorted(self.awaited() & ended)
            if gone and not self.is_complete():
                raise ConnectionError(f"the process of rank {gone[0]} has ended")

    def messages(self) -> Messages:
        """Return none: in memory no message is lost."""
        return Messages()


class StepInFlight(InFlight):
    """A step that has been posted.

    What arrives is written at once where the order of the step allows it.  Until it does, a few messages of
    each sender may wait where they are, and as many as will of those that are lent; others are copied, so
    that what their senders wait for does not depend on this rank.
    """

    def __init__(self, mailroom: Mailroom, step: PreparedStep, buffer: Buffer, fingerprint: int) -> None:
        super().__init__(mailroom)
        self.step = step
        self.buffer = buffer
        self.fingerprint = fingerprint
        self.incoming = copies(step, buffer)
        self.left = len(step.receives)
        self.early: dict[int, Arrived] = {}
        self.waiting_of: Counter[int] = Counter()
        self.done_writes: set[int] = {-1}
        self.blocked = mailroom.loans.under(fingerprint, step.written)
        self._send()
        for peer, number in step.receives:
            target = step.writes[number].target
            nbytes = (target.stop - target.start) * buffer.data.itemsize
            mailroom.inboxes[peer].expect(fingerprint, nbytes, partial(self._deliver, peer, number))

    def _send(self) -> None:
        mailroom = self.mailroom
        shared: dict[Span, Outgoing] = {}
        for peer, span, readers, is_kept in self.step.sends:
            outgoing = shared.get(span)
            if outgoing is None:
                outgoing = shared[span] = Outgoing(span.of(self.buffer), readers)
                if is_kept and outgoing.nbytes > SMALL:
                    mailroom.loans.lend(self.fingerprint, span, outgoing)
            mailroom.outboxes[peer].send(self.fingerprint, outgoing)

    def _deliver(self, peer: int, number: int, message: Arrived) -> None:
        self.left -= 1
        if self._may_write(number):
            self._write(number, message)
            return
        self.early[number] = message
        if message.copy is None and not message.is_lent:
            self.waiting_of[peer] += 1
            if self.waiting_of[peer] >= UNREAD:
                message.keep()
        elif message.copy is not None:
            message.release()

    def _may_write(self, number: int) -> bool:
        step = self.step
        if not step.in_turn or step.before[number] not in self.done_writes:
            return False
        target = step.writes[number].target
        return not any(overlap(own.span, target) for own in self._in_the_way())

    def _write(self, number: int, message: Arrived) -> None:
        """Carry out the write of this *number*, and those that have waited for it."""
        following: int | None = number
        while following is not None:
            write(self.step.writes[following], self.buffer, message.view(self.buffer.data.dtype))
            message.release()
            self.done_writes.add(following)
            following = self.step.after.get(following)
            if following not in self.early:
                return
            message = self.early.pop(following)

    def is_complete(self) -> bool:
        """Return whether all has arrived, all sends are where they can be read, and nothing is in the way."""
        return not self.left and not self._full() and not self._in_the_way()

    def _in_the_way(self) -> list[Loan]:
        """Return what is still to be read where this step writes."""
        if self.blocked:
            self.blocked = self.mailroom.loans.still(self.blocked)
        return self.blocked

    def _full(self) -> list[int]:
        """Return to whom something could not be sent yet."""
        outboxes, fingerprint = self.mailroom.outboxes, self.fingerprint
        return [peer for peer in self.step.receivers if fingerprint in outboxes[peer].waiting]

    def awaited(self) -> set[int]:
        """Return the ranks that have still to send something, to take in messages, or to read."""
        inboxes, is_unread = self.mailroom.inboxes, self.mailroom.arena.is_unread
        missing = {peer for peer in self.step.senders if self.fingerprint in inboxes[peer].expected}
        lent = [own.outgoing for own in self._in_the_way()]
        readers = {peer for outgoing in lent for peer, mark in outgoing.marks if is_unread(mark)}
        return missing | readers | set(self._full())

    def wait(self, timeout: float) -> None:
        """Return when the step is complete and its writes have landed; raises as `InFlight.wait`."""
        super().wait(timeout)
        early = {number: message.view(self.buffer.data.dtype) for number, message in self.early.items()}
        land(self.step, self.buffer, {**self.incoming, **early})
        for message in self.early.values():
            message.release()

    def doing(self) -> str:
        """Return what the step waits for, in words."""
        awaited = self.awaited()
        waiting = [own for own in self.step.step if not isinstance(own, Local | Send) and own.peer in awaited]
        return ", ".join(map(spell_operation, waiting)) or "its messages have not been taken"


class Unmatched(InFlight):
    """Messages of which their receivers have not posted the receive."""

    def __init__(self, mailroom: Mailroom, fingerprint: int) -> None:
        super().__init__(mailroom)
        self.fingerprint = fingerprint

    def awaited(self) -> set[int]:
        """Return the receivers."""
        outboxes = self.mailroom.outboxes.items()
        return {peer for peer, outbox in outboxes if outbox.is_unmatched(self.fingerprint)}

    def observe(self, timeout: float) -> None:
        """Have it noticed when ranks on other hosts have taken their messages."""
        for outbox in self.mailroom.far_outboxes():
            outbox.observe(self.fingerprint, timeout)

    def wait(self, timeout: float) -> None:
        """Return when this is complete; raises as `InFlight.wait`."""
        deadline = time.monotonic() + timeout
        for outbox in self.mailroom.far_outboxes():
            outbox.await_sends(self.fingerprint, deadline)
        super().wait(max(deadline - time.monotonic(), 0.001))

    def is_complete(self) -> bool:
        """Return whether all have been posted, and what they have received is read."""
        outboxes = self.mailroom.outboxes.values()
        if any(outbox.is_unmatched(self.fingerprint) for outbox in outboxes):
            return False
        self.mailroom.loans.forget(self.fingerprint)
        return True

    def doing(self) -> str:
        """Return what is waited for, in words."""
        return "its last messages have not been taken"
