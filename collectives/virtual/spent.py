"""Time spent by a rank in an iteration, or in all: on computation, in waits, and to what it was lost."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from collectives.virtual.iterations import End
from collectives.virtual.streams.losses import BYTES, CONTENTION, HOST, LATE, LATENCY, PIPELINE, SLOWEST
from sim.hardware import Device
from sim.units import to_seconds

OTHER = "other"
CAUSES = (HOST, BYTES, LATENCY, LATE, PIPELINE, SLOWEST, CONTENTION, OTHER)
"""Of lost time on a GPU, as `collectives.virtual.streams.losses` tells them apart.  ``host`` is all waits for
its launches; ``other`` is what is left: copies, other streams, and collectives that begin late for these."""
IN_COMPUTATION = (SLOWEST, CONTENTION)
"""Causes for which computation takes longer; for the others it waits."""


@dataclass(frozen=True)
class Spent:
    """A piece of a rank's time; attributes in seconds.

    Attributes:
        seconds: all of it.
        compute_seconds: what the rank computed.
        exposed_seconds: the rest, in which it waited.
        host_seconds: of that, on a GPU, what the compute stream has waited for the host to launch; else None.
    """

    seconds: float
    compute_seconds: float
    exposed_seconds: float
    host_seconds: float | None = None

    @classmethod
    def between(cls, start: End, end: End, on_gpu: bool = False) -> Spent:
        """Return the time from *start* to *end*."""
        time_ps, computed_ps = end.now_ps - start.now_ps, end.computed_ps - start.computed_ps
        host_seconds = to_seconds(end.host_idle_ps - start.host_idle_ps) if on_gpu else None
        return cls(
            to_seconds(time_ps), to_seconds(computed_ps), to_seconds(time_ps - computed_ps), host_seconds
        )

    def to_json(self) -> dict[str, float]:
        """Return what is known of it as JSON types."""
        return {name: value for name, value in asdict(self).items() if value is not None}


@dataclass(frozen=True)
class Exposed:
    """What the compute stream of a GPU has waited for.

    Attributes:
        collective: its name, or what else it was, such as a copy.
        group: of the collective, in words; "" for what is none.
        seconds: how long.
    """

    collective: str
    group: str
    seconds: float

    @classmethod
    def between(cls, start: End, end: End) -> tuple[Exposed, ...]:
        """Return all that was waited for from *start* to *end*, the longest first."""
        waited = {cause: ps - start.exposed.get(cause, 0) for cause, ps in end.exposed.items()}
        longest_first = sorted(waited.items(), key=lambda item: (-item[1], item[0]))
        return tuple(cls(cause.name, cause.group, to_seconds(ps)) for cause, ps in longest_first if ps)


@dataclass(frozen=True)
class Lost:
    """What an iteration on a GPU has lost to one cause.

    Attributes:
        cause: one of `CAUSES`.
        seconds: how long.
    """

    cause: str
    seconds: float

    @classmethod
    def between(cls, start: End, end: End) -> tuple[Lost, ...]:
        """Return what was lost to each of `CAUSES` from *start* to *end*.

        The sum is the time in which the device has not computed as it would alone.
        """
        lost = {cause: end.lost.get(cause, 0) - start.lost.get(cause, 0) for cause in CAUSES}
        lost[HOST] += end.host_idle_ps - start.host_idle_ps
        waited_ps = end.now_ps - start.now_ps - (end.computed_ps - start.computed_ps)
        lost[OTHER] = waited_ps - sum(ps for cause, ps in lost.items() if cause not in IN_COMPUTATION)
        return tuple(cls(cause, to_seconds(lost[cause])) for cause in CAUSES)


@dataclass(frozen=True)
class HostSpent:
    """What has taken a host's time, whether or not its GPU waited for it.

    Attributes:
        what: ``operations``, ``boundaries`` in Python, or ``collectives`` and messages.
        count: how many.
        seconds: how long.
    """

    what: str
    count: int
    seconds: float

    @classmethod
    def between(cls, start: End, end: End, device: Device) -> tuple[HostSpent, ...]:
        """Return all that was issued from *start* to *end* on *device*, the longest first."""
        issued = end.issued.since(start.issued)
        each = zip(issued._fields, issued, issued.taken_ps(device), strict=True)
        all_of_it = (cls(what, count, to_seconds(taken_ps)) for what, count, taken_ps in each)
        return tuple(sorted(all_of_it, key=lambda own: -own.seconds))
