"""Account of a player: its streams, what the default one computes and waits for, and what is shown of it.

When the default stream waits, that is put down to what came last: the host's launch, or the collective or
copy behind the event that the stream has awaited.  A launch that is late because the host itself has waited
for a collective is put down to that, up to the end of the wait.  What a collective did meanwhile is in
`collectives.virtual.streams.losses`.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

from collectives.virtual.streams.losses import CONTENTION, SLOWEST, Flown, FlownCalls
from collectives.virtual.streams.score import DEFAULT_STREAM, Item, Launch, Mark, Took
from collectives.virtual.streams.spans import Spans
from collectives.virtual.streams.stretch import IssuedItem
from sim.hardware import NOTHING, Issued


class Cause(NamedTuple):
    """What a stream waits for: a collective of a group, a copy, or work on another stream.

    Attributes:
        name: of the collective, or of the copy.
        group: in words; "" for what is no collective.
        stream: of the call; None where it is none, and where causes of all streams are counted together.
    """

    name: str
    group: str = ""
    stream: int | None = None


OTHER_STREAM = Cause("other streams")
"""Kernels on another stream."""


@dataclass(frozen=True)
class PlayedMark:
    """A mark of the score as it was played; counts are those since the start.

    Attributes:
        name: of what is marked.
        host_ps: when the host came to it.
        device_ps: when the default stream had done all that was issued before.
        busy_ps: how long the default stream has computed.
        host_idle_ps: how long it has waited for the host to launch.
        exposed: how long it has waited for each cause; of the thread's own rank.
        lost: what it has lost, by `collectives.virtual.streams.losses`; of the thread's own rank.
        issued: what has taken the host's time.
    """

    name: str
    host_ps: int
    device_ps: int
    busy_ps: int
    host_idle_ps: int
    exposed: dict[Cause, int]
    lost: dict[str, int]
    issued: Issued = NOTHING


@dataclass
class Played:
    """What is known of the ranks of one player.

    Attributes:
        marks: those played so far, in order.
        busy_ps: how long the default stream has computed.
        host_idle_ps: how long it has waited for the host to launch.
        exposed: how long it has waited for each cause; of the thread's own rank.
        lost: what it has lost, by `collectives.virtual.streams.losses`; of the thread's own rank.
        late_ps: by how much calls began later than they should at most, as a rank was asked too late.
        num_late: how many calls did.
        end_ps: when all was done; None before.
    """

    marks: list[PlayedMark] = field(default_factory=list)
    busy_ps: int = 0
    host_idle_ps: int = 0
    exposed: Counter[Cause] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    late_ps: int = 0
    num_late: int = 0
    end_ps: int | None = None

    def copy(self) -> Played:
        """Return a record that goes on by itself."""
        return replace(self, marks=list(self.marks), exposed=Counter(self.exposed), lost=Counter(self.lost))


Raised = tuple[int, Cause | None]
"""A time, and what it is due to."""


@dataclass(slots=True)
class StreamQueue:
    """One stream, and what comes first on it.

    Attributes:
        tail_ps: when it has done all that was begun, events awaited included.
        cause: what its tail is due to; None: to its own kernels.
        held: whether its first item is in flight, awaits an event or is to be settled.
        item: the first one; None: there is nothing to come.
        position: of the item in the score.
        issued_ps: when the host has issued it.
        host_raised: until when the host had waited last by then, and for what.
        idle_ps: how long the stream had waited for the host before its last call began.
    """

    tail_ps: int
    cause: Cause | None = None
    held: bool = False
    item: Item | None = None
    position: int = 0
    issued_ps: int = 0
    host_raised: Raised = (0, None)
    idle_ps: int = 0
    _began_ps: int = 0
    _issued: Sequence[IssuedItem] = ()
    _place: int = 0
    _shares: deque[tuple[Sequence[IssuedItem], int, Raised]] = field(default_factory=deque)

    def put(self, issued: Sequence[IssuedItem], began_ps: int, host_raised: Raised) -> None:
        """Add what the host has *issued* of a stretch, which it began at *began_ps*."""
        self._shares.append((issued, began_ps, host_raised))
        if self.item is None:
            self.pop()

    def pop(self) -> None:
        """Take what comes first."""
        self._place += 1
        if self._place >= len(self._issued):
            if not self._shares:
                self.item, self._issued = None, ()
                return
            self._issued, self._began_ps, self.host_raised = self._shares.popleft()
            self._place = 0
        after_ps, self.position, self.item = self._issued[self._place]
        self.issued_ps = self._began_ps + after_ps

    def queue(self) -> Iterator[tuple[int, int, Item, Raised]]:
        """Yield all that is to come: when the host has issued it, its position, itself, and `host_raised`."""
        place = self._place
        for issued, began_ps, raised in ((self._issued, self._began_ps, self.host_raised), *self._shares):
            for after_ps, position, item in islice(issued, place, None):
                yield began_ps + after_ps, position, item, raised
            place = 0

    def copy(self) -> StreamQueue:
        """Return one that goes on by itself."""
        return replace(self, _shares=deque(self._shares))

    def future(self, from_ps: int) -> tuple[object, ...]:
        """Return what two streams of one pace have to agree in to go on alike; all that begins, *from_ps* on.

        What the host issues on end follows from its first item and from when that was issued.
        """
        shares, place = [], self._place
        for issued, began_ps, raised in ((self._issued, self._began_ps, self.host_raised), *self._shares):
            if issued:
                after_ps, first, _ = issued[place]
                shares.append((began_ps + after_ps, first, issued[-1][1], raised))
            place = 0
        tail = (self.tail_ps, self.cause) if self.tail_ps >= from_ps else None
        return tail, self.held, shares


class Account:
    """What is known of one player.

    Attributes:
        played: all of it.
        spans: where it is shown, if anywhere.
        until_ps: until when the time of the default stream is accounted for.
    """

    def __init__(self, start_ps: int, played: Played, spans: Spans | None) -> None:
        self.played = played
        self.spans = spans
        self.until_ps = start_ps
        self._flown = FlownCalls()

    def copy(self) -> Account:
        """Return an account that goes on by itself, of which nothing is shown."""
        other = Account(self.until_ps, self.played.copy(), None)
        other._flown = self._flown.copy()
        return other

    def run(self, stream: StreamQueue, item: Launch, took: Took) -> None:
        """Let *stream* run its first item, a kernel or a copy."""
        duration_ps = took.duration_ps
        begin_ps = max(stream.tail_ps, stream.issued_ps)
        is_copy = item.kind == "copy"
        if item.stream == DEFAULT_STREAM:
            self._wait(stream)
            if is_copy:
                self.played.exposed[Cause(item.name)] += duration_ps
            else:
                self.played.busy_ps += duration_ps
                if took.slowest_ps or took.contention_ps:
                    self.played.lost[SLOWEST] += took.slowest_ps
                    self.played.lost[CONTENTION] += took.contention_ps
            self.until_ps = begin_ps + duration_ps
            stream.cause = None
        elif is_copy:
            stream.cause = Cause(item.name)
        elif stream.issued_ps > stream.tail_ps:
            stream.cause = None
        stream.tail_ps = begin_ps + duration_ps
        if self.spans is not None:
            self.spans.kernel(item, begin_ps, stream.tail_ps)

    def mark(self, stream: StreamQueue, item: Mark) -> None:
        """Note the times of a mark, to which the default *stream* comes now."""
        self._wait(stream)
        played = self.played
        played.marks.append(
            PlayedMark(
                item.name,
                stream.issued_ps,
                self.until_ps,
                played.busy_ps,
                played.host_idle_ps,
                dict(played.exposed),
                dict(played.lost),
                item.issued,
            )
        )

    def call(self, stream: int, flown: Flown) -> None:
        """Note that a call on a communication *stream* has ended."""
        self._flown.add(stream, flown, self.until_ps)

    def late(self, late_ps: int) -> None:
        """Note that a call begins so much later than it should."""
        if late_ps:
            self.played.num_late += 1
            self.played.late_ps = max(self.played.late_ps, late_ps)

    def _wait(self, stream: StreamQueue) -> None:
        """Account for what the default *stream* waits until it begins what comes first."""
        until_ps = max(stream.tail_ps, stream.issued_ps)
        gap_ps = until_ps - self.until_ps
        if not gap_ps:
            return
        if stream.issued_ps <= stream.tail_ps:
            self._expose(stream.cause or OTHER_STREAM, self.until_ps, until_ps)
        else:
            raised_ps, cause = stream.host_raised
            waited_ps = 0 if cause is None else max(0, min(raised_ps, until_ps) - self.until_ps)
            if cause is not None and waited_ps:
                self._expose(cause, self.until_ps, self.until_ps + waited_ps)
            self.played.host_idle_ps += gap_ps - waited_ps
        self.until_ps = until_ps

    def _expose(self, cause: Cause, since_ps: int, until_ps: int) -> None:
        """Put the wait from *since_ps* to *until_ps* down to *cause*."""
        self.played.exposed[cause._replace(stream=None)] += until_ps - since_ps
        if cause.stream is not None:
            self.played.lost += self._flown.losses(cause.stream, since_ps, until_ps)

    def future(self) -> tuple[object, ...]:
        """Return what two accounts have to agree in, so that they differ by the same from now on."""
        played = self.played
        return self.until_ps, len(played.marks), played.late_ps, played.num_late, played.end_ps
