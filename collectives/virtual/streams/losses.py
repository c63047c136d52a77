"""Losses of a compute stream: what of its time is no computation alone, each piece put down to one cause.

    host          the host had not launched the collective or message that the stream waits for
    late ranks    another rank came later to a collective that the stream waits for
    pipeline      a message that it waits for had not been sent yet
    bytes         a collective or message was under way: the part that the links take for its bytes alone
    latency       the rest of that: latencies, small messages, protocols, links that others use, too
    slowest rank  kernels take as long as on the slowest of the run's GPUs (`sim.hardware.lateness`)
    contention    kernels take longer beside collectives

What else the stream waits for is its host's launch of the next kernel, copies, other streams, and collectives
that begin late for these.

A wait for a communication stream is gone through backwards, call by call, as the calls of one stream do not
overlap.  While a call was under way, its bytes and the rest are spread evenly.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

HOST, LATE, PIPELINE, BYTES, LATENCY = "host", "late ranks", "pipeline", "bytes", "latency"
SLOWEST, CONTENTION = "slowest rank", "contention"


class Flown(NamedTuple):
    """A call of a communication stream that has ended.

    Attributes:
        began_ps: when the rank came to it.
        met_ps: when the last rank of its group did that it can have waited for.
        ended_ps: when the rank was through.
        wire_ps: what links take for its bytes alone.
        is_message: from one rank to another; else a collective.
        idle_ps: how long its stream has waited before it began for the host to launch it.
    """

    began_ps: int
    met_ps: int
    ended_ps: int
    wire_ps: int
    is_message: bool
    idle_ps: int = 0

    def losses(self, since_ps: int, until_ps: int) -> Counter[str]:
        """Return what a stream that waits from *since_ps* to *until_ps* for this call loses to what."""
        idle_ps = max(0, min(until_ps, self.began_ps) - max(since_ps, self.began_ps - self.idle_ps))
        if until_ps <= self.began_ps:
            return +Counter({HOST: idle_ps})
        since_ps, until_ps = max(since_ps, self.began_ps), min(until_ps, self.ended_ps)
        met_ps = min(max(self.met_ps, since_ps), until_ps)
        under_way_ps = self.ended_ps - max(self.met_ps, self.began_ps)
        waited_ps, exposed_ps = met_ps - since_ps, until_ps - met_ps
        wire_ps = exposed_ps * min(self.wire_ps, under_way_ps) // under_way_ps if exposed_ps else 0
        cause = PIPELINE if self.is_message else LATE
        return +Counter({HOST: idle_ps, cause: waited_ps, BYTES: wire_ps, LATENCY: exposed_ps - wire_ps})


class FlownCalls:
    """The calls by communication stream that a wait to come may be for, in order."""

    def __init__(self) -> None:
        self._of_stream: defaultdict[int, list[Flown]] = defaultdict(list)

    def copy(self) -> FlownCalls:
        """Return the same calls of another player."""
        other = FlownCalls()
        other._of_stream.update({stream: list(flown) for stream, flown in self._of_stream.items()})
        return other

    def add(self, stream: int, flown: Flown, until_ps: int) -> None:
        """Add a call of *stream*; until *until_ps* all waits are accounted for."""
        self._of_stream[stream] = [*self._open(stream, until_ps), flown]

    def losses(self, stream: int, since_ps: int, until_ps: int) -> Counter[str]:
        """Return what a wait for calls of *stream* is lost to; not what it waits where there was none."""
        lost = Counter[str]()
        for flown in reversed(self._of_stream[stream]):
            if flown.ended_ps > since_ps:
                lost += flown.losses(since_ps, until_ps)
        return lost

    def _open(self, stream: int, until_ps: int) -> list[Flown]:
        return [flown for flown in self._of_stream[stream] if flown.ended_ps > until_ps]
