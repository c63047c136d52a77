"""Account of a player: what its default stream computes and waits for, and what is shown of it.

When the default stream waits, that is put down to what came last: the host's launch, or the collective or
copy behind the event that the stream has awaited.  A launch that is late because the host itself has waited
for a collective is put down to that, up to the end of the wait.
"""

from __future__ import annotations

from collectives.virtual.streams.played import OTHER_STREAM, Cause, Played, PlayedMark
from collectives.virtual.streams.queue import Queued, StreamQueue
from collectives.virtual.streams.score import DEFAULT_STREAM, Launch, Mark
from collectives.virtual.streams.spans import Spans


class Account:
    """What is known of one player.

    Args:
        start_ps: when its hosts begin.
        played: is added to.
        spans: get what is shown, if anything.

    Attributes:
        played: what is known.
        spans: get what is shown, if anything.
    """

    def __init__(self, start_ps: int, played: Played, spans: Spans | None) -> None:
        self.played = played
        self.spans = spans
        self._until_ps = start_ps

    def copy(self) -> Account:
        """Return an account that goes on by itself, of which nothing is shown."""
        return Account(self._until_ps, self.played.copy(), None)

    def run(self, stream: StreamQueue, queued: Queued, item: Launch, duration_ps: int) -> None:
        """Let *stream* run a kernel, or a copy, for *duration_ps*."""
        begin_ps = max(stream.tail_ps, queued.issued_ps)
        is_copy = item.kind == "copy"
        if item.stream == DEFAULT_STREAM:
            self._wait(stream, queued)
            if is_copy:
                self.played.exposed[Cause(item.name)] += duration_ps
            else:
                self.played.busy_ps += duration_ps
            self._until_ps = begin_ps + duration_ps
            stream.cause = None
        elif is_copy:
            stream.cause = Cause(item.name)
        elif queued.issued_ps > stream.tail_ps:
            stream.cause = None
        stream.tail_ps = begin_ps + duration_ps
        if self.spans is not None:
            self.spans.kernel(item, begin_ps, stream.tail_ps)

    def mark(self, stream: StreamQueue, queued: Queued, item: Mark) -> None:
        """Note the times of a mark, to which the default *stream* comes now."""
        self._wait(stream, queued)
        played = self.played
        played.marks.append(
            PlayedMark(
                item.name,
                queued.issued_ps,
                self._until_ps,
                played.busy_ps,
                played.host_idle_ps,
                dict(played.exposed),
                item.issued,
            )
        )

    def late(self, late_ps: int) -> None:
        """Note that a call begins so much later than it should."""
        if late_ps:
            self.played.num_late += 1
            self.played.late_ps = max(self.played.late_ps, late_ps)

    def _wait(self, stream: StreamQueue, queued: Queued) -> None:
        """Account for what the default *stream* waits until it begins what is queued."""
        until_ps = max(stream.tail_ps, queued.issued_ps)
        gap_ps = until_ps - self._until_ps
        if not gap_ps:
            return
        if queued.issued_ps <= stream.tail_ps:
            self.played.exposed[stream.cause or OTHER_STREAM] += gap_ps
        else:
            raised_ps, cause = queued.host_raised
            waited_ps = 0 if cause is None else max(0, min(raised_ps, until_ps) - self._until_ps)
            if cause is not None and waited_ps:
                self.played.exposed[cause] += waited_ps
            self.played.host_idle_ps += gap_ps - waited_ps
        self._until_ps = until_ps

    def state(self) -> tuple[object, ...]:
        """Return what two accounts have to agree in."""
        return self._until_ps, self.played
