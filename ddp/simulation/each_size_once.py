"""Buckets of one size simulated once: what many equal buckets take, without simulating each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import simpy

from collectives.errors import NotSupportedError
from collectives.timing.queues import EngineName
from collectives.timing.ranks.attention import Attention
from ddp.simulation.communication import ByPrograms, Communication, FormulaQueue, StepQueue


@dataclass(frozen=True)
class EachSizeOnce:
    """Collectives by programs, of which each size is simulated once, alone on an idle network.

    They follow one another: each takes that long from when the one before it is done on every rank.  That is
    what a queue of them takes where all ranks are done together; else the ranks that are done first could
    begin the next one sooner.
    """

    base: ByPrograms
    in_switches: bool = False

    @classmethod
    def of(cls, communication: Communication) -> Communication:
        """Return *communication* with each size simulated once; closed forms as they are.

        Raises:
            NotSupportedError: what a collective takes depends on when it begins.
        """
        if not isinstance(communication, ByPrograms):
            return communication
        on_call = communication.assumed.software.transport.progress == "calls"
        if communication.scenario.conditions or on_call:
            raise NotSupportedError(
                "each_size_once: what a collective takes depends on when it begins, under conditions and "
                "where collectives go on when their rank calls; leave it out"
            )
        return cls(communication)

    def queue(
        self, env: simpy.Environment, engine: EngineName, itemsize: int, attention: Attention | None = None
    ) -> StepQueue:
        """Return a queue in which a collective takes what it takes alone."""

        @cache
        def time_ps(collective: str, nbytes: int) -> int:
            return self.base.takes_ps(collective, nbytes, engine, itemsize)

        return FormulaQueue(env, time_ps)

    def alone_ps(self, nbytes: int, engine: EngineName, itemsize: int) -> int:
        """Return what an all-reduce takes that has the network for itself."""
        return self.base.alone_ps(nbytes, engine, itemsize)
