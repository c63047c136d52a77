"""Score of a rank: what its host issues, in order, and its pace.

A rank thread on a GPU does not live in virtual time, it writes a score.  A player
(`collectives.virtual.streams.player`) plays it for one rank, or for several that do the same.  Streams and
events are numbers that the thread gives; stream 0 is the default one, on which models compute.  An event has
a new number each time it is recorded, so waiting for it means its latest record, as in CUDA.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import NamedTuple, Protocol, TypeAlias

from sim.hardware import NOTHING, Issued

DEFAULT_STREAM = 0


Through: TypeAlias = Callable[[Sequence[int], int], None]
"""Engine: called with ranks, by number in the run, that are through now, and when the last rank came so far
of those with which the least of them has the call."""


class GroupCall(Protocol):
    """A collective, or a message, of a group: everybody who takes part begins it, and is through once."""

    def begin(self, ranks: Sequence[int], through: Through) -> None:
        """Engine: *ranks* come to this call now; *through* is told of each of them once."""


@dataclass(slots=True)
class Launch:
    """A kernel, or a copy, on a stream; costs the host a launch.

    Attributes:
        stream: on which it runs.
        duration_ps: how long, alone on the device.
        name: of the kernel.
        kind: ``kernel`` or ``copy``.
        part: of the iteration, such as ``forward``; "" where nobody asks.
        replayed: by a graph, which costs the host no launch.
    """

    stream: int
    duration_ps: int
    name: str
    kind: str = "kernel"
    part: str = ""
    replayed: bool = False


@dataclass(slots=True)
class HostWork:
    """The host's own time, such as that of a data pipeline."""

    duration_ps: int
    name: str


@dataclass(slots=True)
class Record:
    """*event* happens when the stream has done all that was issued on it before."""

    stream: int
    event: int


@dataclass(slots=True)
class StreamWait:
    """The stream goes on when *event* has happened; the host does not wait."""

    stream: int
    event: int


@dataclass(slots=True)
class HostWait:
    """The host goes on when *event* has happened; *name* says why it waits."""

    event: int
    name: str


@dataclass(slots=True)
class Call:
    """A collective or message on its communication stream, which it holds until the rank is through.

    Attributes:
        stream: the communication stream.
        call: the instance that all members share.
        name: of the collective.
        group: in words.
        label: under which a trace shows it; "": its name.
        replayed: by a graph, which costs the host no launch.
        wire_ps: what links take for its bytes alone.
        is_message: from one rank to another; else a collective.
    """

    stream: int
    call: GroupCall
    name: str
    group: str
    label: str = ""
    replayed: bool = False
    wire_ps: int = 0
    is_message: bool = False


@dataclass(slots=True)
class Mark:
    """A place in the score whose times are wanted, such as the end of an iteration.

    Attributes:
        name: of what is marked.
        live: events that can still be waited for; of the others nothing is kept.
        issued: since the start.
    """

    name: str
    live: frozenset[int] = frozenset()
    issued: Issued = NOTHING


Item: TypeAlias = Launch | HostWork | Record | StreamWait | HostWait | Call | Mark


@dataclass
class Score:
    """What a host has issued so far.

    Attributes:
        items: in order; those that all players have played are dropped.
        dropped: how many.
        closed: whether nothing will be added.
        kept_from: position from which on nothing is dropped, if somebody still reads it.
    """

    items: list[Item] = field(default_factory=list)
    dropped: int = 0
    closed: bool = False
    kept_from: int | None = None

    def __len__(self) -> int:
        return self.dropped + len(self.items)

    def drop(self, until: int) -> None:
        """Forget what stands before position *until*, but for what is kept."""
        if self.kept_from is not None:
            until = max(self.dropped, min(until, self.kept_from))
        del self.items[: until - self.dropped]
        self.dropped = until


class Took(NamedTuple):
    """What a kernel, or a copy, took.

    Attributes:
        duration_ps: all of it.
        slowest_ps: of that, as it ran on the slowest of several GPUs.
        contention_ps: of that, as a collective was under way.
    """

    duration_ps: int
    slowest_ps: int = 0
    contention_ps: int = 0


@dataclass(frozen=True)
class Pace:
    """How fast a rank goes through its score.

    Attributes:
        start_ps: when its host begins.
        launch_ps: the host's time for a launch.
        slowness: by which the rank takes longer for all it does; None: by nothing.
        share: of the device that communication takes while it is in flight.
        slowest: how many times as long as a kernel's duration the slowest of the run's GPUs takes for it.
    """

    start_ps: int = 0
    launch_ps: int = 0
    slowness: Fraction | None = None
    share: Fraction = Fraction(0)
    slowest: Fraction = Fraction(1)

    def scaled(self, duration_ps: int) -> int:
        """Return how long the rank takes for what takes *duration_ps*."""
        return duration_ps if self.slowness is None else ceil(duration_ps * self.slowness)

    def took(self, launch: Launch, is_disturbed: bool) -> Took:
        """Return what a kernel, or a copy, takes; *is_disturbed*: it begins beside communication.

        Beside communication a kernel takes its time over what is left of the device.
        """
        alone_ps = duration_ps = self.scaled(launch.duration_ps)
        if launch.kind == "kernel" and self.slowest != 1:
            duration_ps = -(-alone_ps * self.slowest.numerator // self.slowest.denominator)
        slowest_ps = duration_ps - alone_ps
        if not is_disturbed:
            return Took(duration_ps, slowest_ps)
        taken, whole = self.share.as_integer_ratio()
        disturbed_ps = -(-duration_ps * whole // (whole - taken))
        return Took(disturbed_ps, slowest_ps, disturbed_ps - duration_ps)
