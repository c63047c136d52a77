"""Execution of a collective event by event, with the steps of all ranks as rows of arrays.

Each rank is at a row; when all its messages of that row have arrived, it comes to the next.  A message
is sent as soon as both its ends are at its row, together with all others of which that becomes true at
the same instant.  Nothing here stands for a single message, so where ranks keep in step a row costs a few
array operations.  Where they do not, so much for each few messages is dear; who can go on otherwise, as a
collective alone on its network can (`collectives.timing.rows.out_of_step`), asks to be told.

It takes programs whose sends and receives match row by row (`collectives.timing.rows.pattern`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import simpy

from collectives.execution.transport_model import TransportModel
from collectives.program import Algorithm
from collectives.program.chunking import Chunking
from collectives.program.render import spell_message
from collectives.timing.rows.row_messages import MANY, ActiveRow, RowMessages, moving_rows
from collectives.timing.rows.sizes import MostlyEqual, of_each
from sim.network import Network
from sim.network.coflow import Attempts, CoflowLaunch
from sim.scenario.rank_overhead import RankOverhead
from sim.scenario.step_overheads import StepOverheads
from sim.units import Int64Array

PARTS = 200
"""Launches of parts of rows after which it is asked whether ranks are out of step."""
FEW = 32
"""Messages of such a launch, on the average, below which ranks are out of step."""


class OutOfStepError(Exception):
    """Ranks are so often out of step that it would be faster to begin anew without rows of arrays."""


class RowExecution:
    """One collective on the ranks of a group; a `collectives.timing.queues.Execution`.

    Args:
        network: carries the messages.
        hosts: the place of each rank in the network's topology.
        algorithm: the program of every rank; its rows match.
        chunking: how it divides the buffer.
        overheads: what ranks add to the time of the network, if anything.
        finished: called with ranks that are done, once for each.
        lasting: whether to go on, whatever it costs.

    Raises:
        OutOfStepError: during the run, unless it is *lasting*: ranks have often been out of step.
    """

    def __init__(
        self,
        network: Network,
        hosts: Int64Array,
        algorithm: Algorithm,
        chunking: Chunking,
        overheads: StepOverheads | None,
        finished: Callable[[Int64Array], None],
        *,
        lasting: bool = True,
    ) -> None:
        self._lasting = lasting
        self._parts: list[int] = []
        self._network = network
        self._algorithm = algorithm
        self._finished = finished
        self._moving = moving_rows(
            algorithm, hosts, chunking, overheads, lambda: network.topology, partial(RowMessages, len(hosts))
        )
        self._rows: dict[int, ActiveRow] = {}
        self._num_pulled = 0
        self._rows_of = _RowsByRank()
        self._attempts = Attempts()

    def begin(self, ranks: Int64Array) -> None:
        """Let *ranks* start now."""
        self._enter(0, ranks)

    def _enter(self, number: int, ranks: Int64Array) -> None:
        """Let *ranks* come to the first row from *number* on in which they take part."""
        if number == self._num_pulled:
            self._pull()
        row = self._rows.get(number)
        if row is not None:
            if row.takes_part is None:
                self._come(row, ranks)
                return
            here = row.takes_part[ranks]
            self._come(row, ranks[here])
            ranks = ranks[~here]
        for later, some in self._by_next_row(number, ranks).items():
            if later is None:
                self._finished(np.array(some))
            else:
                self._come(self._rows[later], np.array(some))

    def _come(self, row: ActiveRow, ranks: Int64Array) -> None:
        """Let *ranks*, which take part in *row*, post their messages or, without any, reduce."""
        if row.reducing is None:
            self._after(row.pause, ranks, partial(self._post, row))
            return
        busy = row.messages.per_rank[ranks] > 0
        self._after(row.pause, ranks[busy], partial(self._post, row))
        self._after(row.reducing, ranks[~busy], partial(self._leave, row))

    def _by_next_row(self, number: int, ranks: Int64Array) -> dict[int | None, list[int]]:
        """Return *ranks* by the first row from *number* on in which they take part; None: in none."""
        ranks_of: dict[int | None, list[int]] = {}
        for rank in ranks.tolist():
            found = self._rows_of.next_of(rank, number)
            while found is None and self._pull():
                found = self._rows_of.next_of(rank, self._num_pulled - 1)
            ranks_of.setdefault(found, []).append(rank)
        return ranks_of

    def _post(self, row: ActiveRow, ranks: Int64Array) -> None:
        """Send the messages of *row* both whose ends are at it, now that *ranks* are."""
        coflow, attempts = row.messages.coflow, self._attempts
        tell, describe = partial(self._arrive, row), partial(self._describe, row)
        if len(ranks) == len(row.messages.ranks):
            self._network.launch(CoflowLaunch(coflow, row.nbytes, tell, None, describe, attempts))
            return
        numbers = row.come(ranks)
        if numbers.size:
            self._note_part(len(numbers))
            sizes = row.nbytes if isinstance(row.nbytes, int) else row.nbytes[numbers]
            self._network.launch(CoflowLaunch(coflow, sizes, tell, numbers, describe, attempts))

    def _note_part(self, num_messages: int) -> None:
        """Note that so many messages of a row were sent apart from its others."""
        self._parts.append(num_messages)
        if len(self._parts) == PARTS:
            if not self._lasting and sum(self._parts) < FEW * PARTS:
                raise OutOfStepError
            self._parts.clear()

    def _arrive(self, row: ActiveRow, numbers: Int64Array | None) -> None:
        """Let ranks whose messages of *row* have all arrived reduce, and go on."""
        ranks = row.messages.ranks if numbers is None else row.arrive(numbers)
        self._after(row.reducing, ranks, partial(self._leave, row))

    def _describe(self, row: ActiveRow, message: int) -> tuple[str, str]:
        """Return what this execution does, and which *message* of *row* is under way."""
        nbytes = row.nbytes if isinstance(row.nbytes, int) else int(row.nbytes[message])
        what = spell_message(row.number, *row.messages.ends[message], nbytes)
        return f"{self._algorithm.collective} by {self._algorithm}", what

    def _leave(self, row: ActiveRow, ranks: Int64Array) -> None:
        self._forget(row, len(ranks))
        self._enter(row.number + 1, ranks)

    def _forget(self, row: ActiveRow, num_ranks: int) -> None:
        """Note that so many ranks have left *row*; keep it until all have."""
        row.num_to_come -= num_ranks
        if not row.num_to_come:
            del self._rows[row.number]
            self._rows_of.forget(row)

    def _after(
        self, delays: Int64Array | None, ranks: Int64Array, then: Callable[[Int64Array], None]
    ) -> None:
        """Call *then* with *ranks*, if there are any, each after its delay."""
        if not len(ranks):
            return
        if delays is None:
            then(ranks)
        else:
            call_after(self._network.env, delays[ranks], ranks, then)

    def _pull(self) -> bool:
        """Make the next row; return whether there was one."""
        pulled = next(self._moving, None)
        if pulled is None:
            return False
        messages, sizes, pause, reducing = pulled
        nbytes: int | Int64Array = of_each(sizes, len(messages.source))
        if isinstance(sizes, MostlyEqual) and not sizes.others:
            nbytes = sizes.common

        row = ActiveRow(self._num_pulled, messages, nbytes, pause, reducing)
        if len(row.ranks):
            self._rows[row.number] = row
            self._rows_of.add(row)
        self._num_pulled += 1
        return True


def rows_follow(transport_model: TransportModel, rank_overhead: RankOverhead | None) -> bool:
    """Return whether rows of arrays know the rule by which a step is complete."""
    if transport_model.late_sends or transport_model.reduces == "arriving":
        return False
    return rank_overhead is None or not rank_overhead.arrival_overhead_ps


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


class _RowsByRank:
    """The rows in which each rank takes part, so that it need not walk through the others.

    A row of more than `MANY` ranks is kept as a mask, in which a rank is looked up.
    """

    def __init__(self) -> None:
        self._of_all: list[int] = []
        self._of_many: list[int] = []
        self._takes_part: dict[int, Any] = {}
        self._of_rank: defaultdict[int, list[int]] = defaultdict(list)

    def add(self, row: ActiveRow) -> None:
        """Note who takes part in *row*, which comes after those noted before."""
        if row.takes_part is None:
            self._of_all.append(row.number)
        elif len(row.ranks) > MANY:
            self._of_many.append(row.number)
            self._takes_part[row.number] = row.takes_part
        else:
            for rank in row.ranks.tolist():
                self._of_rank[rank].append(row.number)

    def next_of(self, rank: int, number: int) -> int | None:
        """Return the first row from *number* on in which *rank* takes part, of those noted."""
        found = [_first_from(rows, number) for rows in (self._of_all, self._of_rank[rank])]
        first = min((row for row in found if row is not None), default=None)
        for row in self._of_many[bisect_left(self._of_many, number) :]:
            if first is not None and row > first:
                break
            if self._takes_part[row][rank]:
                return row
        return first

    def forget(self, row: ActiveRow) -> None:
        """Drop what was noted of *row*, to which nobody comes any more."""
        self._takes_part.pop(row.number, None)
        if self._of_many and self._of_many[0] == row.number:
            del self._of_many[0]


def _first_from(rows: list[int], number: int) -> int | None:
    at = bisect_left(rows, number)
    return rows[at] if at < len(rows) else None
