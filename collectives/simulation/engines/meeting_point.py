"""Meeting point of the ranks of a group in virtual time: messages posted, matched, under way and lost.

A message sets out when both its sides have posted it.  What was never matched is what a deadlock is made
of, so the meeting point also knows which call each rank waits in, and gives the verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import simpy

from collectives.execution.blame import Report, judge, spell_ranks
from collectives.execution.call import Call
from collectives.execution.execute import land
from collectives.execution.matching import Matching
from collectives.program import Local, Send, Step
from collectives.program.chunking import Buffer
from collectives.program.render import spell_message, spell_operation
from sim.network import Network
from sim.scenario.rank_overhead import RankOverhead
from sim.scenario.step_overheads import StepOverheads


class Observer(Protocol):
    """Sees what the ranks of a group do in virtual time; changes nothing."""

    def posted(self, rank: int, step: int, pause_ps: int, reducing_ps: int, done: simpy.Event) -> None:
        """Note that *rank* has come to *step*: pauses, then passes messages, then reduces, then is *done*."""

    def matched(
        self, ranks: tuple[int, int], steps: tuple[int, int], nbytes: int, arrival: simpy.Event
    ) -> None:
        """Note that a message sets out now, both sides having posted it.

        Args:
            ranks: source and destination.
            steps: of the source and of the destination.
            nbytes: its size.
            arrival: fires when its last byte has arrived.
        """


class MeetingPoint:
    """Where the ranks of one group meet: messages posted and not yet matched.

    Args:
        network: carries the messages.
        hosts: the place of each rank of the group in the topology; by default rank r is at r.
        rank_overhead: what ranks add to the time of the network in its collectives.
        delay_ps: how long the next message between two places waits before it sets out, in picoseconds.

    Attributes:
        reports: the last call of each rank, for the error of a deadlock.
        waiting: the calls that ranks wait for, by rank.
        observer: is told of every step and message, if there is one.
        dead: ranks of the group that have been killed; they post nothing any more.
        is_calm: no link changes, no message is late and no rank dies.
    """

    def __init__(
        self,
        network: Network,
        hosts: Sequence[int] | None = None,
        rank_overhead: RankOverhead | None = None,
        delay_ps: Callable[[int, int], int] | None = None,
    ) -> None:
        self.network = network
        self.hosts = list(range(network.topology.num_ranks)) if hosts is None else list(hosts)
        self.matching: Matching[tuple[_StepInFlight, int]] = Matching()
        self.reports: dict[int, Report] = {}
        self.waiting: dict[int, Call] = {}
        self.observer: Observer | None = None
        self.rank_overhead = rank_overhead or RankOverhead()
        self.delay_ps = delay_ps
        self.dead: set[int] = set()
        self.is_calm = False

    def verdict(self, fate: Callable[[int], str] | None = None) -> str:
        """Return whom the ranks wait for in vain, once nothing can happen any more; nothing if none waits.

        Args:
            fate: says what became of the rank at a place that waits for nothing here.
        """
        if not self.waiting:
            return ""
        first = min(self.waiting.values(), key=lambda call: (call.lane is not None, call.sequence))
        absent = set(range(len(self.hosts))) - self.waiting.keys()
        reports = {rank: self.reports.get(rank) for rank in absent}
        reports |= {rank: replace(self.reports[rank], call=call) for rank, call in self.waiting.items()}
        known = {self.hosts[rank]: report and report.at(self.hosts) for rank, report in reports.items()}
        fates = {self.hosts[rank]: "" if fate is None else fate(self.hosts[rank]) for rank in absent}
        group = f"{self.group}: " if self.group else ""
        return f"{group}{first.at(self.hosts)}: {judge(known, fates).text}"

    @property
    def group(self) -> str:
        """Who is in the group, in words, where its ranks have other numbers than in the run."""
        if self.hosts == list(range(self.network.topology.num_ranks)):
            return ""
        return f"in the group of {spell_ranks(self.hosts)}"

    def remove(self, rank: int) -> None:
        """Forget what *rank*, which has been killed, has posted; messages under way still arrive."""
        self.dead.add(rank)
        self.waiting.pop(rank, None)
        self.matching.forget(rank)

    def start_transfer(self, send: tuple[_StepInFlight, int], receive: tuple[_StepInFlight, int]) -> None:
        """Let a message set out of which both sides have been posted."""
        (sender, sent), (receiver, received) = send, receive
        source, destination = sender.rank, receiver.rank
        operation = sender.step[sent]
        assert isinstance(operation, Send)
        receiver.incoming[received] = sender.buffer.snapshot(operation)
        sender.unmatched.discard(sent)
        receiver.unmatched.discard(received)
        nbytes = sender.buffer.nbytes(operation)
        places = self.hosts[source], self.hosts[destination]
        about = partial(sender.describe, sent)

        def set_out(_: simpy.Event | None = None) -> None:
            arrival = self.network.transfer(*places, nbytes, about)
            assert arrival.callbacks is not None
            if self.observer is not None:
                self.observer.matched(
                    (source, destination), (sender.number, receiver.number), nbytes, arrival
                )
            arrival.callbacks.append(receiver.complete_one)
            arrival.callbacks.append(sender.complete_one)

        delay_ps = 0 if self.delay_ps is None else self.delay_ps(*places)
        if delay_ps:
            self.network.env.timeout(delay_ps).callbacks.append(set_out)
        else:
            set_out()


class SimulatedPort:
    """One rank's side of a meeting point: enough to run a program.

    Attributes:
        progress: says what this rank waits for, where its steps are not posted here but carried out
            together with those of all other ranks.
    """

    def __init__(self, meeting_point: MeetingPoint, rank: int) -> None:
        self.meeting_point = meeting_point
        self.rank = rank
        self.world_size = len(meeting_point.hosts)
        self.current: _StepInFlight | None = None
        self.step = -1
        self.overheads: StepOverheads | None = None
        self.what = ""
        self.progress: Callable[[], str] | None = None

    def begin(self, what: str, overheads: StepOverheads | None = None) -> None:
        """Number the steps of the next program from 0.

        Args:
            what: the collective and its algorithm, for errors.
            overheads: what ranks add to their time.
        """
        self.current, self.step, self.progress = None, -1, None
        self.what, self.overheads = what, overheads

    def post(self, step: Step, buffer: Buffer, fingerprint: int) -> simpy.Event:
        """Start all operations of *step*; the event fires when all are complete."""
        self.step += 1
        env = self.meeting_point.network.env
        in_flight = self.current = _StepInFlight(env, self.what, self.rank, self.step, step, buffer)
        pause_ps = 0
        if self.overheads is not None:
            pause_ps = self.overheads.before(self.rank, in_flight.remaining)
            reduced = sum(buffer.nbytes(operation) for operation in step if operation.reduces)
            in_flight.reducing_ps = self.overheads.reduction(self.rank, reduced)
        if self.meeting_point.observer is not None:
            self.meeting_point.observer.posted(
                self.rank, self.step, pause_ps, in_flight.reducing_ps, in_flight.done
            )
        if pause_ps:
            env.timeout(pause_ps).callbacks.append(lambda _: self._offer(in_flight, fingerprint))
        else:
            self._offer(in_flight, fingerprint)
        return in_flight.done

    def _offer(self, in_flight: _StepInFlight, fingerprint: int) -> None:
        """Let peers find the messages of a step; without any, it is complete."""
        if self.rank in self.meeting_point.dead:
            return
        if not in_flight.remaining:
            in_flight.complete()
        for position, operation in enumerate(in_flight.step):
            if not isinstance(operation, Local):
                met = self.meeting_point.matching.post(
                    self.rank, operation, fingerprint, (in_flight, position)
                )
                if met is not None:
                    self.meeting_point.start_transfer(*met)

    def drain(self, fingerprint: int) -> None:
        """Return None: a step is complete when its sends are."""

    def doing(self) -> str:
        """Return in words what the step in flight waits for."""
        if self.progress is not None:
            return self.progress()
        if self.current is None:
            return "not begun"
        waiting = sorted(self.current.unmatched)
        if not waiting:
            return f"step {self.step}, messages under way"
        operations = ", ".join(spell_operation(self.current.step[position]) for position in waiting)
        return f"step {self.step}, {operations}"


class _StepInFlight:
    """A step that has been posted; ``done`` fires when all its operations are complete."""

    __slots__ = (
        "buffer",
        "done",
        "env",
        "incoming",
        "number",
        "rank",
        "reducing_ps",
        "remaining",
        "step",
        "unmatched",
        "what",
    )

    def __init__(
        self, env: simpy.Environment, what: str, rank: int, number: int, step: Step, buffer: Buffer
    ) -> None:
        self.env = env
        self.what = what
        self.rank = rank
        self.number = number
        self.step = step
        self.buffer = buffer
        self.incoming: dict[int, Any] = {
            n: buffer.source(operation, step)
            for n, operation in enumerate(step)
            if isinstance(operation, Local)
        }
        self.unmatched = {n for n in range(len(step)) if n not in self.incoming}
        self.remaining = len(self.unmatched)
        self.reducing_ps = 0
        self.done = simpy.Event(env)

    def describe(self, position: int) -> tuple[str, str]:
        """Return the collective, and the message of the `Send` at *position*."""
        send = self.step[position]
        assert isinstance(send, Send)
        return self.what, spell_message(self.number, self.rank, send.peer, self.buffer.nbytes(send))

    def complete_one(self, _: simpy.Event) -> None:
        self.remaining -= 1
        if not self.remaining:
            self.complete()

    def complete(self) -> None:
        """Reduce what has arrived, which may take time; then the step is done."""
        if self.reducing_ps:
            self.env.timeout(self.reducing_ps).callbacks.append(self.finish)
        else:
            self.finish()

    def finish(self, _: simpy.Event | None = None) -> None:
        if self.buffer.data is not None:
            land(self.step, self.buffer, self.incoming)
        self.done.succeed()
