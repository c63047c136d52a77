"""Execution of collectives alone on their network where ranks are out of step: messages as numbers.

The steps of all ranks are rows (`collectives.timing.rows.pattern`).  A rank comes to its next row when its
messages of the last one are through, and a message sets out when both its ends have come to its row.  Two
kinds of messages:

    unhindered  no other message can be on its links meanwhile: its end follows from its beginning at once
    bundled     shares a link with others: `sim.network.bundles` tells in the order of time when it is through

A link hinders nobody where one collective alone crosses it, no row has two messages over it, and all rows'
messages have one rank in common, which is through with one before it comes to the next.  So nothing is an
object or an event for each message, and only what shares a link is put in the order of time.

It takes what `collectives.timing.rows.row_execution` does, of one call of each communicator on a network
whose links stay as they are.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collectives.program import Algorithm
from collectives.program.chunking import Chunking
from collectives.timing.rows.pattern import Pattern
from collectives.timing.rows.repeated_rows import kept_rows
from collectives.timing.rows.row_messages import moving_rows
from collectives.timing.rows.sizes import of_each
from sim.network.bundles import Bundle, Bundles
from sim.network.coflow import Coflow
from sim.scenario.step_overheads import StepOverheads
from sim.topology import Topology
from sim.units import Int64Array, transfer_ps

_NO_RANK = -2
_ANY_RANK = -1


@dataclass(eq=False)
class _Way:
    """Messages between the same ranks, row after row; all lists are over them.

    Attributes:
        ends: the ranks that send and receive each.
        latency_ps: of the way of each.
        narrowest: bytes/s of the slowest link of each.
        bundles: which is hindered, where; None: nobody hinders it.
        of_rank: the numbers of those that each rank sends or receives, by rank.
        per_rank: how many each rank does, shape (num_ranks,).
    """

    ends: list[tuple[int, int]]
    latency_ps: list[int]
    narrowest: list[int]
    bundles: list[Bundle | None]
    of_rank: dict[int, list[int]]
    per_rank: Int64Array


@dataclass(eq=False, slots=True)
class _Row:
    """A step of all ranks.

    Attributes:
        collective: whose it is.
        way: of its messages.
        nbytes: of each.
        taken_ps: what each takes on its links if nobody hinders it.
        pause: of each rank before it; None: nobody's.
        reducing: how long each rank reduces at its end; None: nobody does.
        come_ps: when the first end of each message has come; -1: none has.
    """

    collective: OutOfStep
    way: _Way
    nbytes: list[int]
    taken_ps: list[int]
    pause: list[int] | None
    reducing: list[int] | None
    come_ps: list[int]


class OutOfStep:
    """One collective among ranks at *hosts*; `run_out_of_step` carries it out.

    Args:
        topology: the network; without sharing tables.
        hosts: the place of each rank.
        algorithm: the program of every rank; its rows match.
        chunking: how it divides the buffer.
        overheads: what ranks add to the time of the network, if anything.
        start_ps: when each rank starts.

    Attributes:
        crosses: which links its messages cross; the last stands for none.
        hinders: on which of them one message may meet another.
        through_ps: when the last messages of each rank were through; in the end, when it is done.
    """

    def __init__(
        self,
        topology: Topology,
        hosts: Int64Array,
        algorithm: Algorithm,
        chunking: Chunking,
        overheads: StepOverheads | None,
        start_ps: Int64Array,
    ) -> None:
        self.crosses, self.hinders = _crossed(topology, hosts, algorithm)
        self.through_ps: list[int] = start_ps.tolist()
        self._bundles: Bundles[tuple[_Row, int]] = Bundles(topology)
        self._rows = moving_rows(algorithm, hosts, chunking, overheads, lambda: topology, self._way)
        self._to_do: list[deque[_Row]] = [deque() for _ in range(len(hosts))]
        self._row: list[_Row | None] = [None] * len(hosts)  # at which each rank is
        self._left = [0] * len(hosts)  # messages of it that each rank still awaits
        self._going_on = list(range(len(hosts)))  # ranks that are through with their row
        self._taken: dict[tuple[int, int], int] = {}

    def share(self, bundles: Bundles[tuple[_Row, int]], hinders: npt.NDArray[np.bool_]) -> None:
        """Let messages over links that *hinders* names be of *bundles*, where others' are, too."""
        self._bundles, self.hinders = bundles, hinders

    def go_on(self) -> None:
        """Let ranks come to the rows that follow, and all that this lets end."""
        going_on = self._going_on
        while going_on:
            rank = going_on.pop()
            row, now = self._row[rank], self.through_ps[rank]
            if row is not None and row.reducing is not None:
                now += row.reducing[rank]
            while not self._to_do[rank] and self._pull():
                pass
            if not self._to_do[rank]:
                self.through_ps[rank] = now
                continue
            row = self._row[rank] = self._to_do[rank].popleft()
            numbers = row.way.of_rank.get(rank)
            if numbers is None:  # it only reduces
                self.through_ps[rank] = now
                going_on.append(rank)
                continue
            if row.pause is not None:
                now += row.pause[rank]
            self.through_ps[rank] = now
            self._left[rank] = len(numbers)
            self._come(row, numbers, now)

    def _come(self, row: _Row, numbers: list[int], now: int) -> None:
        """Let an end of the messages of these *numbers* be there."""
        way, come_ps = row.way, row.come_ps
        for number in numbers:
            other = come_ps[number]
            if other < 0:
                come_ps[number] = now
                continue
            start_ps = (other if other > now else now) + way.latency_ps[number]
            bundle = way.bundles[number]
            if bundle is None:
                self.arrive(row, number, start_ps + row.taken_ps[number])
            else:
                self._bundles.begin(bundle, start_ps, row.nbytes[number], (row, number))

    def arrive(self, row: _Row, number: int, end_ps: int) -> None:
        """Let message *number* of *row* be through at *end_ps*; ranks that await no other go on."""
        through_ps, left = self.through_ps, self._left
        for rank in row.way.ends[number]:
            if end_ps > through_ps[rank]:
                through_ps[rank] = end_ps
            left[rank] -= 1
            if not left[rank]:
                self._going_on.append(rank)

    def _pull(self) -> bool:
        """Make the next row; return whether there was one."""
        pulled = next(self._rows, None)
        if pulled is None:
            return False
        way, sizes, pause, reducing = pulled
        nbytes = of_each(sizes, len(way.ends)).tolist()
        reduces = _listed(reducing)
        row = _Row(
            self, way, nbytes, self._taken_ps(way, nbytes), _listed(pause), reduces, [-1] * len(nbytes)
        )
        for rank in way.of_rank:
            self._to_do[rank].append(row)
        for rank, reduces_ps in enumerate(reduces or ()):
            if reduces_ps and rank not in way.of_rank:
                self._to_do[rank].append(row)
        return True

    def _way(self, coflow: Coflow, source: Int64Array, destination: Int64Array) -> _Way:
        hindered: list[bool] = np.asarray(self.hinders[coflow.links].any(axis=1)).tolist()
        no_link, over = coflow.no_link, self._bundles.over
        bundles = [
            over(tuple([link for link in links if link != no_link])) if is_hindered else None
            for links, is_hindered in zip(coflow.links.tolist(), hindered, strict=True)
        ]
        ends = list(zip(source.tolist(), destination.tolist(), strict=True))
        of_rank: dict[int, list[int]] = {}
        for number, both in enumerate(ends):
            for rank in both:
                of_rank.setdefault(rank, []).append(number)
        per_rank = np.bincount(np.concatenate([source, destination]), minlength=len(self._to_do))
        return _Way(ends, coflow.latency_ps.tolist(), coflow.narrowest.tolist(), bundles, of_rank, per_rank)

    def _taken_ps(self, way: _Way, nbytes: list[int]) -> list[int]:
        """Return what each message takes on its links if nobody hinders it."""
        taken, found = self._taken, []
        for pair in zip(nbytes, way.narrowest, strict=True):
            known = taken.get(pair)
            if known is None:
                known = taken[pair] = transfer_ps(*pair)
            found.append(known)
        return found


def run_out_of_step(
    topology: Topology, collectives: Sequence[OutOfStep], watch: Callable[[int], None] | None = None
) -> None:
    """Carry out *collectives*, which have *topology* to themselves; their ranks are then `through_ps`.

    *watch* is called again and again with the time reached.
    """
    bundles: Bundles[tuple[_Row, int]] = Bundles(topology)
    num_on = np.sum([collective.crosses for collective in collectives], axis=0)
    hinders = (num_on > 1) | np.any([collective.hinders for collective in collectives], axis=0)
    hinders[-1] = False
    for collective in collectives:
        collective.share(bundles, hinders)
        collective.go_on()
    while (ended := bundles.next_ends()) is not None:
        now, messages = ended
        for row, number in messages:
            row.collective.arrive(row, number, now)
        for row, _ in messages:
            row.collective.go_on()
        if watch is not None:
            watch(now)


def _listed(times: Int64Array | None) -> list[int] | None:
    return None if times is None else times.tolist()


def _patterns(algorithm: Algorithm, num_ranks: int) -> Iterator[Pattern]:
    """Yield the patterns of the rows, each once as long as it lasts."""
    last = None
    for _, pattern in kept_rows(algorithm, num_ranks):
        if pattern is not last:
            yield pattern
        last = pattern


def _crossed(
    topology: Topology, hosts: Int64Array, algorithm: Algorithm
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Return for each link, and at the end for none, whether messages cross it, and may meet there."""
    hinders: npt.NDArray[np.bool_] = np.zeros(topology.num_links + 1, dtype=np.bool_)
    owners = np.full((2, topology.num_links + 1), _ANY_RANK, dtype=np.int64)  # ranks of all messages so far
    for pattern in _patterns(algorithm, len(hosts)):
        ends = np.stack([pattern.source, pattern.destination])
        links = Coflow.between(topology, hosts[ends[0]], hosts[ends[1]], pattern.channel).links
        hinders |= np.bincount(links.ravel(), minlength=len(hinders)) > 1
        for column in links.T:
            of_these = owners[:, column]
            remain = (of_these[:, None] == ends).any(axis=1)
            owners[:, column] = np.where(of_these == _ANY_RANK, ends, np.where(remain, of_these, _NO_RANK))
    hinders |= (owners == _NO_RANK).all(axis=0)
    return (owners != _ANY_RANK).any(axis=0), hinders
