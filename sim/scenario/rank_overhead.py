"""Overhead of ranks: the time that they add to that of the network, before and after each step.

A rank that comes to a step first *pauses*: ``step_overhead``, ``overhead`` for each message of the step that
it sends or receives, ``posting`` for each that it sends to another node, all before any of them starts (as
NCCL launches what is between ``ncclGroupStart`` and ``ncclGroupEnd`` together), and what `Jitter` draws for
it.  It knows of a message that it receives ``arrival_overhead`` after the last byte of it; messages do not
wait for each other in this.  When it knows of all that it awaits, it *reduces* all that it is to reduce, at
``reduction_bandwidth``; then the step is complete.  What is awaited, and when reducing begins, is the
transport's rule, not the rank's (`collectives.execution.transport_model`).
A step without messages takes no time but that of its reductions.  A slow rank takes ``factor`` times
as long for all of this.

Source: the overhead o of LogP, Culler et al., PPoPP 1993; γ of Thakur, Rabenseifner and Gropp,
IJHPCA 19(1), 2005.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from sim.errors import UnitError
from sim.scenario.conditions import Jitter
from sim.units import Int64Array, Quantity, parse_bandwidth, parse_time


@dataclass(frozen=True)
class RankOverhead:
    """Time that ranks take for what they do themselves: LogP's o, and γ.

    Attributes:
        overhead_ps: of each message, on either side.
        reduction_bandwidth: bytes/s, or None: reducing takes no time.
        arrival_overhead_ps: from the last byte of a message until its receiver knows.
        factors: how many times as long a rank takes, for the slow ones.
        delays_ps: how long after the others a rank begins whatever it is to do, for the late ones.
        jitter: random pauses, if any.
        step_ps: of each step with messages.
        posting_ps: of each message to a rank of another node, on its sender.
        nodes: of each rank; none: messages are posted to no other node.
    """

    overhead_ps: int = 0
    reduction_bandwidth: int | None = None
    arrival_overhead_ps: int = 0
    factors: tuple[tuple[int, Fraction], ...] = ()
    delays_ps: tuple[tuple[int, int], ...] = ()
    jitter: Jitter | None = None
    step_ps: int = 0
    posting_ps: int = 0
    nodes: tuple[int, ...] = ()

    @classmethod
    def of(
        cls,
        overhead: Quantity = 0,
        reduction_bandwidth: Quantity | None = None,
        jitter: Jitter | None = None,
        *,
        arrival_overhead: Quantity = 0,
        step_overhead: Quantity = 0,
        posting: Quantity = 0,
    ) -> RankOverhead:
        """Return the overhead of ranks that are all alike, from what people write.

        Raises:
            UnitError: a quantity that cannot be read.
        """
        rate = (
            None
            if reduction_bandwidth is None
            else parse_bandwidth(reduction_bandwidth, "reduction_bandwidth")
        )
        return cls(
            overhead_ps=parse_time(overhead, "overhead"),
            step_ps=parse_time(step_overhead, "step_overhead"),
            posting_ps=parse_time(posting, "posting"),
            reduction_bandwidth=rate,
            arrival_overhead_ps=parse_time(arrival_overhead, "arrival_overhead"),
            jitter=jitter,
        )

    def with_slow(self, factors: Mapping[int, Fraction]) -> RankOverhead:
        """Return this overhead with ranks that take so many times as long."""
        return replace(self, factors=tuple(sorted(factors.items())))

    def with_late(self, delays_ps: Mapping[int, int]) -> RankOverhead:
        """Return this overhead with ranks that begin so much later than the others."""
        return replace(self, delays_ps=tuple(sorted(delays_ps.items())))

    def on_nodes(self, nodes: tuple[int, ...]) -> RankOverhead:
        """Return this overhead of ranks that are on such *nodes*, shape (num_ranks,)."""
        return replace(self, nodes=nodes if self.posting_ps else ())

    def in_one_kernel(self) -> RankOverhead:
        """Return this overhead of ranks that carry out all steps of a call without a launch of each."""
        return replace(self, step_ps=0, posting_ps=0, nodes=())

    @property
    def is_free(self) -> bool:
        """Whether ranks add nothing to the time of the network, once they have begun."""
        of_steps = self.overhead_ps or self.step_ps or self.posting_ps or self.arrival_overhead_ps
        return not of_steps and self.reduction_bandwidth is None and self.jitter is None

    def delays_of(self, num_ranks: int) -> Int64Array:
        """Return how long after the others each rank begins, in picoseconds, shape (num_ranks,)."""
        delays = np.zeros(num_ranks, dtype=np.int64)
        for rank, delay_ps in self.delays_ps:
            delays[rank] = delay_ps
        return delays

    def overheads_ps(self, num_ranks: int) -> Int64Array:
        """Return what each rank takes for a message, shape (num_ranks,)."""
        return self._of_each(self.overhead_ps, num_ranks)

    def steps_ps(self, num_ranks: int) -> Int64Array:
        """Return what each rank takes for a step with messages, shape (num_ranks,)."""
        return self._of_each(self.step_ps, num_ranks)

    def postings_ps(self, num_ranks: int) -> Int64Array:
        """Return what each rank takes for a message to another node, shape (num_ranks,)."""
        return self._of_each(self.posting_ps, num_ranks)

    def arrival_overheads_ps(self, num_ranks: int) -> Int64Array:
        """Return how long after the last byte of a message each rank knows of it, shape (num_ranks,)."""
        return self._of_each(self.arrival_overhead_ps, num_ranks)

    def reduction_bandwidths(self, num_ranks: int) -> Int64Array:
        """Return the bytes/s at which each rank reduces, shape (num_ranks,).

        Raises:
            UnitError: reducing takes no time.
        """
        if self.reduction_bandwidth is None:
            raise UnitError("reduction_bandwidth: none is given")
        rates = np.full(num_ranks, self.reduction_bandwidth, dtype=np.int64)
        for rank, factor in self.factors:
            rates[rank] = max(1, self.reduction_bandwidth * factor.denominator // factor.numerator)
        return rates

    def _of_each(self, time_ps: int, num_ranks: int) -> Int64Array:
        """Return what takes a usual rank *time_ps*, for each rank."""
        times = np.full(num_ranks, time_ps, dtype=np.int64)
        for rank, factor in self.factors:
            times[rank] = -(-time_ps * factor.numerator // factor.denominator)
        return times
