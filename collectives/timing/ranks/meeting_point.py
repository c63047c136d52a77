"""Meeting point of the ranks of a group in virtual time: messages posted, matched, under way and lost.

A message sets out when both its sides have posted it.  What was never matched is what a deadlock is made
of, so the meeting point also knows which call each rank waits in, and gives the verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import simpy

from collectives.execution.blame import Report, judge, spell_ranks
from collectives.execution.call import Call
from collectives.execution.matching import Matching
from collectives.execution.transport_model import IDEAL, TransportModel
from collectives.program import Send
from collectives.timing.ranks.step_in_flight import StepInFlight
from sim.network import Network
from sim.scenario.rank_overhead import RankOverhead

if TYPE_CHECKING:
    from collectives.timing.observation import Observation


class MeetingPoint:
    """Where the ranks of one group meet: messages posted and not yet matched.

    Args:
        network: carries the messages.
        hosts: the place of each rank of the group in the topology; by default rank r is at r.
        rank_overhead: what ranks add to the time of the network in its collectives.
        delay_ps: how long the next message between two places waits before it sets out, in picoseconds.
        transport_model: how a rank completes a step.

    Attributes:
        reports: the last call of each rank, for the error of a deadlock.
        waiting: the calls that ranks wait for, by rank.
        observer: is told of every step and message, if there is one.
        dead: ranks of the group that have been killed; they post nothing any more.
        called: the ranks that have come to a call, by its fingerprint, until all have.
        is_calm: no link changes, no message is late and no rank dies.
        key: tells it from others, the same in every run of a program.
    """

    def __init__(
        self,
        network: Network,
        hosts: Sequence[int] | None = None,
        rank_overhead: RankOverhead | None = None,
        delay_ps: Callable[[int, int], int] | None = None,
        transport_model: TransportModel = IDEAL,
    ) -> None:
        self.network = network
        self.hosts = list(range(network.topology.num_ranks)) if hosts is None else list(hosts)
        self.matching: Matching[tuple[StepInFlight, int]] = Matching()
        self.reports: dict[int, Report] = {}
        self.waiting: dict[int, Call] = {}
        self.observer: Observation | None = None
        self.rank_overhead = rank_overhead or RankOverhead()
        self.delay_ps = delay_ps
        self.transport_model = transport_model
        self.dead: set[int] = set()
        self.called: dict[int, set[int]] = {}
        self.is_calm = False
        self.key: Hashable = ()

    def verdict(self, fate: Callable[[int], str] | None = None) -> str:
        """Return whom the ranks wait for in vain, once nothing can happen any more; nothing if none waits.

        Args:
            fate: says what became of the rank at a place that waits for nothing here.
        """
        if not self.waiting:
            return ""
        first = min(sorted(self.waiting.items()), key=lambda own: (own[1].lane is not None, own[1].sequence))[
            1
        ]
        absent = set(range(len(self.hosts))) - self.waiting.keys()
        reports = {rank: self.reports.get(rank) for rank in absent}
        for rank, call in self.waiting.items():
            reports[rank] = replace(self.reports.get(rank, Report(call, "posted")), call=call)
        known = {self.hosts[rank]: report and report.at(self.hosts) for rank, report in reports.items()}
        fates = {self.hosts[rank]: "" if fate is None else fate(self.hosts[rank]) for rank in absent}
        group = f"{self.group}: " if self.group else ""
        return f"{group}{first.at(self.hosts)}: {judge(known, fates).text}"

    def come(self, rank: int, fingerprint: int) -> None:
        """Note that *rank* has come to a call of all ranks."""
        ranks = self.called.setdefault(fingerprint, set())
        ranks.add(rank)
        if len(ranks) == len(self.hosts):
            del self.called[fingerprint]

    def absent(self, fingerprint: int) -> str:
        """Return which ranks have not come to a call to which others have, in words; nothing if all have."""
        if fingerprint not in self.called:
            return ""
        ranks = set(range(len(self.hosts))) - self.called[fingerprint]
        return f"waits for {spell_ranks([self.hosts[rank] for rank in sorted(ranks)])} to call"

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

    def start_transfer(self, send: tuple[StepInFlight, int], receive: tuple[StepInFlight, int]) -> None:
        """Let a message set out of which both sides have been posted."""
        (sender, sent), (receiver, received) = send, receive
        source, destination = sender.rank, receiver.rank
        operation = sender.step[sent]
        assert isinstance(operation, Send)
        receiver.incoming[received] = sender.buffer.snapshot(operation)
        sender.unmatched.discard(sent)
        receiver.unmatched.discard(received)
        nbytes = (sender.program.wire or sender.buffer).nbytes(operation)
        places = self.hosts[source], self.hosts[destination]
        about = partial(sender.describe, sent)

        def set_out(_: simpy.Event | None = None) -> None:
            arrival = self.network.transfer(*places, nbytes, about, operation.channel)
            assert arrival.callbacks is not None
            if self.observer is not None:
                self.observer.matched(
                    (source, destination),
                    (sender.number, receiver.number),
                    nbytes,
                    arrival,
                    operation.channel,
                )
            if self.transport_model.reduces == "arriving":
                receiver.sets_out(received, self.network.latency_ps(*places, operation.channel))
            arrival.callbacks.append(receiver.on_arrival())
            arrival.callbacks.append(sender.on_taken(sent))

        delay_ps = 0 if self.delay_ps is None else self.delay_ps(*places)
        if delay_ps:
            self.network.env.timeout(delay_ps).callbacks.append(set_out)
        else:
            set_out()
