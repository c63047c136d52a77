"""Observation of a run: the steps of each rank, its messages and the load of the links, as a trace.

An observed run carries out the same steps at the same times as any other, but rank by rank and message by
message, so it is slower and is refused beyond `MAX_MESSAGES`.

In the trace each rank has a track ``steps``, where a step is divided into what the rank did itself (pause),
the wait for its peers to come, the exchange and the reduction, and tracks ``send`` and ``receive`` for its
messages, as many of each as it has messages at once.  Arrows lead from the sender to the receiver.
Where sends are awaited late, a span says so before a step or at the end.  The links are counters of how
full they are, in percent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

import simpy

from collectives.errors import NotSupportedError
from collectives.timing.job import PlannedJob
from collectives.timing.links import Traffic
from sim.network.recorder import WHOLE, Recorder
from sim.trace import Trace

MAX_MESSAGES = 50_000
"""Messages up to which a run is observed; a trace of so many takes about 50 MB."""


@dataclass(eq=False)
class SeenStep:
    """A step of a rank; times are picoseconds."""

    rank: int
    number: int
    began_ps: int
    pause_ps: int
    reducing_ps: int
    ended_ps: int | None = None
    sends: list[SeenMessage] = field(default_factory=list)
    receives: list[SeenMessage] = field(default_factory=list)


@dataclass(eq=False)
class SeenMessage:
    """A message; it starts when both sides have posted it."""

    source: int
    destination: int
    nbytes: int
    steps: tuple[int, int]
    start_ps: int
    channel: int = 0
    end_ps: int | None = None


class Observation:
    """What the ranks of *planned* did, as their meeting point tells it; it changes nothing.

    Args:
        planned: what they carry out.
        recorder: of the network.
        among_others: whether other jobs run on the network, too.

    Raises:
        NotSupportedError: it sends more messages than are observed.
    """

    def __init__(self, planned: PlannedJob, recorder: Recorder, among_others: bool = False) -> None:
        num_messages = Traffic.of(planned).num_messages
        if num_messages > MAX_MESSAGES:
            raise NotSupportedError(
                f"too many messages to record: {planned.algorithm} on {len(planned.hosts)} ranks sends "
                f"{num_messages}, and at most {MAX_MESSAGES} are kept; take fewer ranks (bytes and "
                "utilisation of links are known without)"
            )
        self.planned = planned
        self.recorder = recorder
        self.among_others = among_others
        self.steps: dict[tuple[int, int], SeenStep] = {}
        self.messages: list[SeenMessage] = []

    def posted(self, rank: int, step: int, pause_ps: int, reducing_ps: int, done: simpy.Event) -> None:
        """Note that *rank* has come to *step*: pauses, then passes messages, then reduces, then is *done*."""
        seen = SeenStep(rank, step, int(done.env.now), pause_ps, reducing_ps)
        self.steps[rank, step] = seen

        def ended(event: simpy.Event) -> None:
            seen.ended_ps = int(event.env.now)

        assert done.callbacks is not None
        done.callbacks.append(ended)

    def matched(
        self, ranks: tuple[int, int], steps: tuple[int, int], nbytes: int, arrival: simpy.Event, channel: int
    ) -> None:
        """Note that a message sets out now, both sides having posted it, over connection *channel*.

        *ranks* and *steps* are of source and destination; *arrival* fires when its last byte has arrived.
        """
        seen = SeenMessage(*ranks, nbytes, steps, int(arrival.env.now), channel)
        self.messages.append(seen)
        self.steps[ranks[0], steps[0]].sends.append(seen)
        self.steps[ranks[1], steps[1]].receives.append(seen)

        def ended(event: simpy.Event) -> None:
            seen.end_ps = int(event.env.now)

        assert arrival.callbacks is not None
        arrival.callbacks.append(ended)

    def trace(self, time_ps: int) -> Trace:
        """Return what happened until *time_ps*; what had not ended by then says so."""
        planned, topology = self.planned, self.planned.scenario.topology
        trace = Trace(
            {
                "method": "simulated",
                "algorithm": str(planned.algorithm),
                "collective": planned.algorithm.collective,
                "bytes": planned.nbytes,
                "itemsize": planned.itemsize,
                "ranks": len(planned.hosts),
                "places": list(planned.hosts),
                "network": topology.name,
                "digest": planned.scenario.base.digest(),
                "overhead_ps": planned.rank_overhead.overhead_ps,
                "step_ps": planned.rank_overhead.step_ps,
                "posting_ps": planned.rank_overhead.posting_ps,
                "arrival_overhead_ps": planned.rank_overhead.arrival_overhead_ps,
                "transport_model": planned.transport_model.name,
                "reduction_bandwidth": planned.rank_overhead.reduction_bandwidth,
                "conditions": [str(condition) for condition in planned.scenario.conditions],
            }
        )

        for step in self.steps.values():
            _draw_step(trace, step, time_ps)
        for steps in self._steps_of_ranks():
            _draw_waits(trace, steps, time_ps)
        self._draw_messages(trace, time_ps)

        for link in range(topology.num_links):
            timeline = self.recorder.timeline(link)
            if any(filled for _, filled in timeline):
                for since_ps, filled in timeline:
                    millionths = filled * 10**8 // WHOLE
                    trace.counter("links", topology.link_name(link), since_ps, "%", millionths)

        return trace

    def _steps_of_ranks(self) -> Iterable[list[SeenStep]]:
        """Return the steps of each rank that has any, in order."""
        of_rank: defaultdict[int, list[SeenStep]] = defaultdict(list)
        for step in self.steps.values():
            of_rank[step.rank].append(step)
        return of_rank.values()

    def _draw_messages(self, trace: Trace, time_ps: int) -> None:
        """Draw each message on either side, and the arrow between the two."""
        tracks = _Tracks()
        planned, topology = self.planned, self.planned.scenario.topology
        messages = sorted(
            self.messages, key=lambda seen: (seen.start_ps, seen.source, seen.destination, seen.steps)
        )
        for number, seen in enumerate(messages):
            source, destination = seen.source, seen.destination
            end_ps, late = _end(seen.end_ps, time_ps)
            about: dict[str, Any] = {"bytes": seen.nbytes, **late}
            out = tracks.take((source, "send"), seen.start_ps, end_ps)
            into = tracks.take((destination, "receive"), seen.start_ps, end_ps)

            via: dict[str, Any] = {}
            if not planned.scenario.reroutes:
                route = topology.route(planned.hosts[source], planned.hosts[destination], seen.channel)
                via = {"links": [topology.link_name(link) for link in route]}

            trace.span(
                source, out, f"> rank {destination}", seen.start_ps, end_ps,
                **about, **via, step=seen.steps[0],
            )  # fmt: skip
            trace.span(
                destination, into, f"< rank {source}", seen.start_ps, end_ps, **about, step=seen.steps[1]
            )
            trace.arrow(number, (source, out), (destination, into), seen.start_ps)


class _Tracks:
    """Tracks of spans that do not overlap, as viewers want them; as few as there are spans at once."""

    def __init__(self) -> None:
        self._free: defaultdict[tuple[int, str], list[int]] = defaultdict(list)
        self._busy: defaultdict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)

    def take(self, where: tuple[int, str], start_ps: int, end_ps: int) -> str:
        """Return the track of a span; spans come in the order in which they start."""
        free, busy = self._free[where], self._busy[where]
        while busy and busy[0][0] <= start_ps:
            heappush(free, heappop(busy)[1])
        track = heappop(free) if free else len(busy) + 1
        heappush(busy, (end_ps, track))
        return where[1] if track == 1 else f"{where[1]} {track}"


def _draw_step(trace: Trace, step: SeenStep, time_ps: int) -> None:
    """Draw a step, and in it its phases, those that take time."""
    messages = [*step.sends, *step.receives]
    end_ps, late = _end(step.ended_ps, time_ps)
    args: dict[str, Any] = {
        "sends": [{"to": seen.destination, "bytes": seen.nbytes} for seen in step.sends],
        "receives": [{"from": seen.source, "bytes": seen.nbytes} for seen in step.receives],
        **late,
    }
    trace.span(step.rank, "steps", f"step {step.number}", step.began_ps, end_ps, **args)

    phases: list[tuple[str, int]] = [("pause", step.began_ps + step.pause_ps)]
    if messages:
        last = max(messages, key=lambda seen: (seen.start_ps, -seen.source, -seen.destination))
        peer = last.destination if last.source == step.rank else last.source
        phases.append((f"wait for rank {peer}", last.start_ps))
    phases.append(("exchange", end_ps - step.reducing_ps if step.ended_ps is not None else end_ps))
    phases.append(("reduce", end_ps))

    since_ps = step.began_ps
    for name, until_ps in phases:
        until_ps = min(until_ps, end_ps)
        if until_ps > since_ps:
            trace.span(step.rank, "steps", name, since_ps, until_ps)
            since_ps = until_ps


def _draw_waits(trace: Trace, steps: list[SeenStep], time_ps: int) -> None:
    """Draw where a rank, between its *steps* and after them, awaits what it has sent."""
    last_ps = max((_end(seen.end_ps, time_ps)[0] for step in steps for seen in step.sends), default=0)
    goes_on_ps = [step.began_ps for step in steps[1:]] + [last_ps]
    for step, until_ps in zip(steps, goes_on_ps, strict=True):
        if step.ended_ps is not None and until_ps > step.ended_ps:
            trace.span(step.rank, "steps", "wait for sends", step.ended_ps, until_ps)


def _end(end_ps: int | None, time_ps: int) -> tuple[int, dict[str, bool]]:
    return (time_ps, {"unfinished": True}) if end_ps is None else (end_ps, {})
