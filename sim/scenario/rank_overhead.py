"""Overhead of ranks: the time that they add to that of the network, before and after each step.

A rank that comes to a step first *pauses*: ``overhead`` for each message of the step that it sends or
receives, all before any of them starts (as NCCL launches what is between ``ncclGroupStart`` and
``ncclGroupEnd`` together), and what `Jitter` draws for it.  When the last message of the step has
arrived, it *reduces* all that it is to reduce, at ``reduction_bandwidth``; then the step is complete.
A step without messages takes no time but that of its reductions.  A slow rank takes ``factor`` times
as long for all of this.

Source: the overhead o of LogP, Culler et al., PPoPP 1993; γ of Thakur, Rabenseifner and Gropp,
IJHPCA 19(1), 2005.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
import simpy

from sim.errors import ConditionError, UnitError
from sim.units import Int64Array, Quantity, parse_bandwidth, parse_time, transfer_ps

Distribution: TypeAlias = Literal["uniform", "exponential"]


@dataclass(frozen=True)
class Jitter:
    """A random pause of every rank before every step that it takes part in.

    Attributes:
        mean: of the pause, ``"1us"`` or seconds.
        distribution: ``uniform`` from 0 to twice the mean, or ``exponential``.
        seed: of the generator; the same seed gives the same run.
    """

    mean: Quantity
    distribution: Distribution = "uniform"
    seed: int = 0
    mean_ps: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "mean_ps", parse_time(self.mean, "jitter"))
        if self.distribution not in get_args(Distribution):
            known = ", ".join(get_args(Distribution))
            raise ConditionError(
                f"jitter: unknown distribution {self.distribution!r}; expected one of {known}"
            )

    def draws(self, call: int, num_ranks: int) -> Iterator[Int64Array]:
        """Yield the pauses of all ranks, in picoseconds, in the *call*-th collective of a communicator."""
        generator = np.random.Generator(np.random.SFC64([self.seed, call]))
        while True:
            if self.distribution == "uniform":
                yield (generator.random(num_ranks) * (2 * self.mean_ps)).astype(np.int64)
            else:
                yield (generator.standard_exponential(num_ranks) * self.mean_ps).astype(np.int64)


@dataclass(frozen=True)
class RankOverhead:
    """Time that ranks take for what they do themselves: LogP's o, and γ.

    Attributes:
        overhead_ps: of each message, on either side.
        reduction_bandwidth: bytes/s, or None: reducing takes no time.
        factors: how many times as long a rank takes, for the slow ones.
        delays_ps: how long after the others a rank begins whatever it is to do, for the late ones.
        jitter: random pauses, if any.
    """

    overhead_ps: int = 0
    reduction_bandwidth: int | None = None
    factors: tuple[tuple[int, Fraction], ...] = ()
    delays_ps: tuple[tuple[int, int], ...] = ()
    jitter: Jitter | None = None

    @classmethod
    def of(
        cls,
        overhead: Quantity = 0,
        reduction_bandwidth: Quantity | None = None,
        jitter: Jitter | None = None,
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
        return cls(parse_time(overhead, "overhead"), rate, jitter=jitter)

    def with_slow(self, factors: Mapping[int, Fraction]) -> RankOverhead:
        """Return this overhead with ranks that take so many times as long."""
        return replace(self, factors=tuple(sorted(factors.items())))

    def with_late(self, delays_ps: Mapping[int, int]) -> RankOverhead:
        """Return this overhead with ranks that begin so much later than the others."""
        return replace(self, delays_ps=tuple(sorted(delays_ps.items())))

    @property
    def is_free(self) -> bool:
        """Whether ranks add nothing to the time of the network, once they have begun."""
        return not self.overhead_ps and self.reduction_bandwidth is None and self.jitter is None

    def delays_of(self, num_ranks: int) -> Int64Array:
        """Return how long after the others each rank begins, in picoseconds, shape (num_ranks,)."""
        delays = np.zeros(num_ranks, dtype=np.int64)
        for rank, delay_ps in self.delays_ps:
            delays[rank] = delay_ps
        return delays

    def overheads_ps(self, num_ranks: int) -> Int64Array:
        """Return what each rank takes for a message, shape (num_ranks,)."""
        overheads = np.full(num_ranks, self.overhead_ps, dtype=np.int64)
        for rank, factor in self.factors:
            overheads[rank] = -(-self.overhead_ps * factor.numerator // factor.denominator)
        return overheads

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


class StepOverheads:
    """The pauses of all ranks in the steps of one call; see `RankOverhead`.

    A rank's n-th pause is for the n-th step that it takes part in, whichever way it is asked for.
    """

    def __init__(self, rank_overhead: RankOverhead, num_ranks: int, call: int) -> None:
        self._overheads = rank_overhead.overheads_ps(num_ranks) if rank_overhead.overhead_ps else None
        self._rates = (
            None
            if rank_overhead.reduction_bandwidth is None
            else rank_overhead.reduction_bandwidths(num_ranks)
        )
        self._draws = (
            rank_overhead.jitter.draws(call, num_ranks) if rank_overhead.jitter is not None else None
        )
        self._drawn: list[Int64Array] = []  # those that some rank has yet to take, from the first such on
        self._num_forgotten = 0
        self._num_taken = np.zeros(num_ranks, dtype=np.int64)

    def next_row(self, num_messages: Int64Array) -> Int64Array | None:
        """Return what each rank waits before its next step, in which it has *num_messages*.

        None where nobody waits; ranks without messages take no part in the step and do not.
        """
        pause = None if self._overheads is None else self._overheads * num_messages
        if self._draws is not None:
            drawn = self._take(num_messages > 0)
            pause = drawn if pause is None else pause + drawn
        return pause

    def before(self, rank: int, num_messages: int) -> int:
        """Return how long *rank* waits before its next step, in which it has *num_messages*."""
        if not num_messages:
            return 0
        pause = 0 if self._overheads is None else int(self._overheads[rank]) * num_messages
        if self._draws is not None:
            pause += int(self._row(int(self._num_taken[rank]))[rank])
            self._num_taken[rank] += 1
        return pause

    def reduction_row(self, nbytes: Callable[[], Int64Array]) -> Int64Array | None:
        """Return how long each rank reduces its *nbytes*, or None where that takes no time."""
        return None if self._rates is None else transfer_ps(nbytes(), self._rates)

    def reduction(self, rank: int, nbytes: int) -> int:
        """Return how long *rank* reduces *nbytes*."""
        return 0 if self._rates is None else transfer_ps(nbytes, int(self._rates[rank]))

    def _take(self, takes: npt.NDArray[np.bool_]) -> Int64Array:
        """Return the next pause of each rank that *takes* one, and 0 for the others."""
        assert self._draws is not None
        if not self._drawn and takes.all():  # all ranks have taken equally many
            self._num_forgotten += 1
            self._num_taken += 1
            return next(self._draws)
        ranks = np.flatnonzero(takes)
        taken = np.zeros(len(takes), dtype=np.int64)
        for number in np.unique(self._num_taken[ranks]).tolist():
            there = ranks[self._num_taken[ranks] == number]
            taken[there] = self._row(number)[there]
        self._num_taken[ranks] += 1
        behind = int(self._num_taken.min()) - self._num_forgotten
        del self._drawn[:behind]
        self._num_forgotten += behind
        return taken

    def _row(self, number: int) -> Int64Array:
        assert self._draws is not None
        while self._num_forgotten + len(self._drawn) <= number:
            self._drawn.append(next(self._draws))
        return self._drawn[number - self._num_forgotten]


def call_after(
    env: simpy.Environment, delays_ps: Int64Array, ranks: Int64Array, then: Callable[[Int64Array], None]
) -> None:
    """Call *then* with *ranks*, each after its delay; at once with those that have none."""
    if not delays_ps.any():
        if len(ranks):
            then(ranks)
        return
    for delay_ps in np.unique(delays_ps).tolist():
        some = ranks[delays_ps == delay_ps]
        if delay_ps:
            event = env.timeout(delay_ps, value=some)
            event.callbacks.append(lambda fired: then(fired.value))
        else:
            then(some)
