"""Overheads of the steps of one call: pauses before them, arrivals noticed late, reductions after them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import numpy.typing as npt

from sim.scenario.rank_overhead import RankOverhead
from sim.units import Int64Array, transfer_ps


class StepOverheads:
    """What all ranks add to the steps of one call, as `RankOverhead` says.

    A rank's n-th pause is for the n-th step that it takes part in, asked for by row or by rank.

    Args:
        rank_overhead: of the ranks.
        num_ranks: in the group.
        call: its number among those of the communicator; jitter is drawn from it.

    Attributes:
        arrivals_ps: from the last byte of a message until each rank knows of it, shape (num_ranks,); None: at
            once.
    """

    def __init__(self, rank_overhead: RankOverhead, num_ranks: int, call: int) -> None:
        self._overheads: Int64Array | None = None
        self._steps: Int64Array | None = None
        self._postings: Int64Array | None = None
        self._nodes = np.array(rank_overhead.nodes)
        self._rates: Int64Array | None = None
        self.arrivals_ps: Int64Array | None = None
        self._draws: Iterator[Int64Array] | None = None
        if rank_overhead.overhead_ps:
            self._overheads = rank_overhead.overheads_ps(num_ranks)
        if rank_overhead.step_ps:
            self._steps = rank_overhead.steps_ps(num_ranks)
        if rank_overhead.posting_ps and rank_overhead.nodes:
            self._postings = rank_overhead.postings_ps(num_ranks)
        if rank_overhead.arrival_overhead_ps:
            self.arrivals_ps = rank_overhead.arrival_overheads_ps(num_ranks)
        if rank_overhead.reduction_bandwidth is not None:
            self._rates = rank_overhead.reduction_bandwidths(num_ranks)
        if rank_overhead.jitter is not None:
            self._draws = rank_overhead.jitter.draws(call, num_ranks)

        self._drawn: list[Int64Array] = []  # those that some rank has yet to take, from the first such on
        self._num_forgotten = 0
        self._num_taken = np.zeros(num_ranks, dtype=np.int64)

    @classmethod
    def of(cls, rank_overhead: RankOverhead, num_ranks: int, call: int) -> StepOverheads | None:
        """Return what ranks add to a call; None where that is nothing."""
        return None if rank_overhead.is_free else cls(rank_overhead, num_ranks, call)

    def next_row(
        self, num_messages: Int64Array, ends: Callable[[], tuple[Int64Array, Int64Array]]
    ) -> Int64Array | None:
        """Return what each rank waits before its next step, in which it has *num_messages*.

        None where nobody waits; ranks without messages take no part in the step and do not.

        Args:
            num_messages: that each rank sends and receives, shape (num_ranks,).
            ends: returns who sends each message and who receives it, each of shape (messages,).
        """
        pauses = []
        if self._overheads is not None:
            pauses.append(self._overheads * num_messages)
        if self._steps is not None:
            pauses.append(self._steps * (num_messages > 0))
        if self._postings is not None:
            source, destination = ends()
            posted = source[self._nodes[source] != self._nodes[destination]]
            pauses.append(self._postings * np.bincount(posted, minlength=len(num_messages)))
        if self._draws is not None:
            pauses.append(self._take(num_messages > 0))
        return sum(pauses[1:], pauses[0]) if pauses else None

    def before(self, rank: int, num_messages: int, receivers: Iterable[int]) -> int:
        """Return how long *rank* waits before its next step.

        Args:
            rank: whose step it is.
            num_messages: that it sends and receives.
            receivers: of those that it sends.
        """
        if not num_messages:
            return 0
        pause = 0 if self._overheads is None else int(self._overheads[rank]) * num_messages
        if self._steps is not None:
            pause += int(self._steps[rank])
        if self._postings is not None:
            posted = sum(self._nodes[peer] != self._nodes[rank] for peer in receivers)
            pause += int(self._postings[rank]) * int(posted)
        if self._draws is not None:
            pause += int(self._row(int(self._num_taken[rank]))[rank])
            self._num_taken[rank] += 1
        return pause

    def arrival(self, rank: int) -> int:
        """Return how long after the last byte of a message *rank* knows of it."""
        return 0 if self.arrivals_ps is None else int(self.arrivals_ps[rank])

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
