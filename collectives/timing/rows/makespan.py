"""Evaluation of a collective for all ranks at once, with NumPy and without events.

Step k of all ranks is one *row* of messages (`collectives.timing.rows.pattern`).  A message starts when both
its ends have reached the row, waits for the latency of its route, and occupies the links of the route
until its bytes are through.  Messages of a row that share a link and take to it together end at times that
follow from their sizes (`sim.network.coflow.coflow`); worked out once, these serve every repetition.  So the
result equals that of the event engine to the picosecond.

Assumptions, checked for every row; where one does not hold, `NotExactError` names it and no time
is given: messages match within a row; those of a row that share a link take to it together; no link
still carries a message of an earlier row; sharing has symmetry enough to be solved at once.

[Note: in step]  While all ranks are equally far, no message of an earlier row is under way, and a row takes
what it took the last time: then it costs a few additions, whatever the number of ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from collectives.errors import NotExactError
from collectives.execution.transport_model import IDEAL, TransportModel
from collectives.program import Algorithm
from collectives.program.chunking import Chunking
from collectives.timing.ranks.attention import Attention
from collectives.timing.rows.coflow_times import CoflowTimes, over_ranks, together
from collectives.timing.rows.pattern import Pattern, reduced_nbytes
from collectives.timing.rows.repeated_rows import SiblingPattern, SizedRow, sized_rows
from collectives.timing.rows.sizes import Sizes, without_empty
from collectives.timing.rows.step_completion import StepCompletion
from sim.errors import UnitError
from sim.scenario.rank_overhead import RankOverhead
from sim.scenario.step_overheads import StepOverheads
from sim.topology import Topology
from sim.units import MAX_PS, Int64Array

Watch: TypeAlias = Callable[[SizedRow], None]

_SEVERAL = 64
"""Latencies of the longest way, and some more, that must fit into a time together."""


@dataclass(frozen=True)
class Evaluated:
    """A collective that was evaluated, from what, and what came of it."""

    algorithm: Algorithm
    nbytes: int
    start_ps: Int64Array
    busy_before: Int64Array
    attention: Attention
    done_ps: Int64Array
    busy_until: Int64Array

    def holds(
        self, algorithm: Algorithm, nbytes: int, start_ps: Int64Array, busy: Int64Array, attention: Attention
    ) -> bool:
        """Return whether the same comes of the same: ranks look at the same times until all are done."""
        if algorithm is not self.algorithm or nbytes != self.nbytes:
            return False
        if not (np.array_equal(start_ps, self.start_ps) and np.array_equal(busy, self.busy_before)):
            return False
        span = int(start_ps.min(initial=0)), int(self.done_ps.max(initial=0))
        return attention.within(*span) == self.attention.within(*span)


class Makespan:
    """Collectives of one communicator in virtual time; links remember until when they are busy.

    Args:
        topology: the network.
        hosts: the place of each rank in the topology; by default rank r is at place r.
        rank_overhead: what ranks add to the time of the network.
        transport_model: how a rank completes a step.
        attention: when ranks notice that a step is complete; None: at once.
        earlier: what the collectives of another one came to, which differs from this in its attention alone;
            is kept up to date.  One that begins as it did then, and in which ranks look at the same times
            from its beginning to its end, is not evaluated again.
    """

    def __init__(
        self,
        topology: Topology,
        hosts: Sequence[int] | Int64Array | None = None,
        rank_overhead: RankOverhead | None = None,
        transport_model: TransportModel = IDEAL,
        attention: Attention | None = None,
        earlier: list[Evaluated] | None = None,
    ) -> None:
        self._earlier = earlier
        self.topology = topology
        self.hosts = np.arange(topology.num_ranks) if hosts is None else np.asarray(hosts)
        self.rank_overhead = rank_overhead or RankOverhead()
        self.transport_model = transport_model
        self.attention = attention
        _check_latencies(topology)
        self._busy_until = np.zeros(topology.num_links + 1, dtype=np.int64)  # the last stands for no link
        self._num_run = 0

    def run(
        self,
        algorithm: Algorithm,
        chunking: Chunking,
        start_ps: Int64Array,
        num_groups: int = 1,
        watch: Watch | None = None,
    ) -> Int64Array:
        """Return when each rank is done, in picoseconds: those of a group, or of several alike.

        They start at *start_ps*, shape (num_ranks,), the first group first; *watch* is told of all rows.

        Raises:
            NotExactError: messages meet in a way that this engine does not solve, or do not match row by
                row, or a time does not fit into 62 bits.
        """
        if self._earlier is None or self.attention is None:
            return self._evaluated(algorithm, chunking, start_ps, num_groups, watch)
        number, before = self._num_run, self._busy_until.copy()
        nbytes = chunking.count * chunking.itemsize
        if number < len(self._earlier):
            known = self._earlier[number]
            if known.holds(algorithm, nbytes, start_ps, before, self.attention):
                self._num_run += 1
                self._busy_until[:] = known.busy_until
                return known.done_ps.copy()
        done_ps = self._evaluated(algorithm, chunking, start_ps, num_groups, watch)
        now = Evaluated(
            algorithm,
            nbytes,
            start_ps.copy(),
            before,
            self.attention,
            done_ps.copy(),
            self._busy_until.copy(),
        )
        self._earlier[number:] = [now]
        return done_ps

    def _evaluated(
        self,
        algorithm: Algorithm,
        chunking: Chunking,
        start_ps: Int64Array,
        num_groups: int,
        watch: Watch | None,
    ) -> Int64Array:
        num_ranks, group_size = len(self.hosts), len(self.hosts) // num_groups
        overheads = StepOverheads.of(self.rank_overhead, num_ranks, self._num_run)
        self._num_run += 1

        completion = self._completion(overheads, chunking)
        if num_groups > 1 and (completion is not None or self.rank_overhead.jitter is not None):
            raise NotExactError("several groups at once complete steps by another rule; use engine='events'")
        ready, latest = together(start_ps), int(start_ps.max(initial=0))
        row_times = _RowTimes(self.topology, self.hosts, self._busy_until)
        each = overheads is not None or completion is not None or self.attention is not None
        try:
            for row in sized_rows(algorithm, group_size, chunking, num_groups=num_groups, each=each):
                step, pattern, nbytes, count = row
                times, sizes = row_times.of(pattern, nbytes)
                if watch is not None:
                    watch(row)

                if completion is not None:
                    completion.check(step, ready)

                pause = (
                    None
                    if overheads is None
                    else overheads.next_row(times.num_messages(sizes), partial(times.moving, sizes))
                )
                if pause is not None:
                    ready = together(ready + pause)
                    latest += int(pause.max(initial=0))

                if len(times):
                    if completion is None or not isinstance(pattern, Pattern):
                        ready = times.advance_repeatedly(ready, sizes, self._busy_until, count)
                    else:
                        ready = completion.advance(step, pattern, times, ready, sizes, self._busy_until)
                        latest += completion.longest_arrival_ps
                    latest += times.longest_ps * count

                reduced = partial(reduced_nbytes, step, group_size, chunking, num_groups)
                reducing = None if overheads is None else overheads.reduction_row(reduced)
                if reducing is not None:
                    ready = together(ready + reducing)
                    latest += int(reducing.max(initial=0))

                if self.attention is not None:
                    ready = self.attention.noticed(ready)
                _check_fits(latest)
        except UnitError as error:
            raise NotExactError(f"{error}; use engine='events'") from error

        row_times.leave()
        if completion is not None:
            ready = completion.drained(ready)
        if self.attention is not None:
            ready = self.attention.noticed(ready)
        return over_ranks(ready, num_ranks)

    def _completion(self, overheads: StepOverheads | None, chunking: Chunking) -> StepCompletion | None:
        """Return the rule by which steps are complete; None: all messages are awaited at once.

        Raises:
            NotExactError: it is one that is not followed here.
        """
        arrivals = None if overheads is None else overheads.arrivals_ps
        model, reduces = self.transport_model, self.rank_overhead.reduction_bandwidth is not None
        if reduces and model.reduces == "arriving":
            raise NotExactError("bytes are reduced while they arrive; use engine='events'")
        if arrivals is None and not model.late_sends:
            return None
        return StepCompletion(model, arrivals, chunking, len(self.hosts))


class _RowTimes:
    """The times of each row: kept for as long as the pattern, and the messages that move, stay."""

    def __init__(self, topology: Topology, hosts: Int64Array, busy_until: Int64Array) -> None:
        self._topology = topology
        self._hosts = hosts
        self._busy_until = busy_until
        self._pattern: Pattern | SiblingPattern | None = None
        self._whole: CoflowTimes | None = None
        self._moving = b""
        self._some: CoflowTimes | None = None

    def of(self, pattern: Pattern | SiblingPattern, nbytes: Sizes) -> tuple[CoflowTimes, Sizes]:
        """Return the times of the messages of *pattern* that are not empty, and their sizes.

        In a permutation all are kept, so that those of each row need no coflow of their own.
        """
        if self._whole is None or self._pattern is not pattern:
            self.leave()
            ends = pattern.source, pattern.destination, pattern.channel
            self._pattern, self._whole = pattern, CoflowTimes.between(self._topology, self._hosts, *ends)
        whole = self._whole

        if whole.is_permutation:
            return whole, nbytes
        some, sizes = without_empty(nbytes, len(pattern.source))
        if some is None:
            self._leave_some()
            return whole, sizes

        whole.leave(self._busy_until)
        if self._some is None or self._moving != some.tobytes():
            self._leave_some()
            self._moving, self._some = some.tobytes(), whole.select(some)
        return self._some, sizes

    def leave(self) -> None:
        """Let the links know how long the last row occupies them."""
        self._leave_some()
        if self._whole is not None:
            self._whole.leave(self._busy_until)

    def _leave_some(self) -> None:
        if self._some is not None:
            self._some.leave(self._busy_until)
            self._some = None


def _check_latencies(topology: Topology) -> None:
    """Refuse latencies of which a few do not fit into 64 bits, so that no sum of them wraps around."""
    _check_fits(_SEVERAL * int(topology.link_latency.max(initial=0)))


def _check_fits(latest_ps: int) -> None:
    if latest_ps > MAX_PS:
        raise NotExactError("a time beyond 2^62 ps does not fit; use engine='events'")
