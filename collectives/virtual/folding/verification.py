"""Verification that ranks of one class do the same: some of them run the first iteration.

The first rank of a class and its probes (`collectives.virtual.folding.probes`) are compared in their second
iteration, at its first collective of more than 4,096 elements or at its end, so that what a script does
between two iterations, such as to print its loss, is in it; or at the end of the script.  If all have issued
the same, the threads of the probes end, and their ranks go on with what the first one issues.  If not,
`MembersDiffer`: the run begins anew with smaller classes.  What a rank has issued in an earlier attempt is
known, so it needs no thread again to be compared with.

What that cannot find: a rank that is none of these and alone does something else, and differences that begin
after that, but for unequal parts of an all-to-all: experts that get equally many tokens in one iteration may
not in the next.  Where there are none, and routing is stated, sizes that a rank reads tell that there may be
such a difference (`collectives.virtual.folding.divisions`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping

import simpy

from collectives.errors import NotSupportedError
from collectives.execution.blame import spell_ranks
from collectives.virtual.folding.classes import Classes, MembersDiffer, RankClass
from collectives.virtual.folding.signature import (
    Signature,
    agree_so_far,
    alike_in,
    first_difference,
    only_objects_differ,
    signature_of,
    spell,
)
from collectives.virtual.streams.gpu import current_gpu
from collectives.virtual.streams.gpus import Gpus
from sim.cluster import Cluster, RankThread

FEW_RANKS = 64
"""So many ranks are rather given a thread each than refused, or halved time and again."""
SMALL = 4096
"""Elements up to which a collective may be of what a script prints."""


class Verification:
    """Compares members of the classes of one attempt."""

    def __init__(
        self,
        cluster: Cluster,
        classes: Classes,
        known: dict[int, Signature],
        on_settled: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._classes = classes
        self._known = known
        self._on_settled = on_settled
        self._open = {own.first: own for own in classes.folded if not known.keys() >= set(own.compared)}
        self._came: dict[int, Signature] = {}
        self._iterations: dict[int, int] = {}
        self._leaving: dict[int, simpy.Event] = {}
        for own in classes.folded:
            if own.first not in self._open:
                own.num_compared = len(known[own.first])
        if not self._open:
            on_settled()

    def begin(self, rank: int) -> None:
        """Let the thread of *rank* keep what it issues for as long as it is to be compared."""
        own = self._classes.of(rank)
        gpu = current_gpu()
        if own is not None and own.first in self._open and gpu is not None:
            gpu.score.kept_from = 0

    def end_iteration(self, rank_thread: RankThread, number: int) -> None:
        """Compare where the second iteration is about to end, at the latest."""
        self._iterations[rank_thread.rank] = number
        if number > 1:
            self._compare(rank_thread)

    def before_call(self, rank_thread: RankThread, count: int) -> None:
        """Compare at the first large call after the first iteration; look for unequal parts at each.

        A model is divided over ranks before its first large call.
        """
        if count <= SMALL or not self._open:
            return
        self._classes.check_parts(rank_thread.rank)
        if self._iterations.get(rank_thread.rank):
            self._compare(rank_thread)

    def _compare(self, rank_thread: RankThread) -> None:
        """Compare what a rank has issued so far; a probe that does the same leaves."""
        rank = rank_thread.rank
        own = self._classes.of(rank)
        if own is None or rank in self._came or own.first not in self._open:
            return
        if rank not in own.probes:
            self._come(own, rank)
            return
        merged = self._leaving[rank] = self._cluster.env.event()
        self._come(own, rank)
        if rank in own.probes:
            awaited = spell_ranks([own.first, *own.probes])
            rank_thread.wait(merged, lambda: f"{awaited} to come to their second iteration", alone=True)
        rank_thread.leave()

    def finish(self, rank: int) -> None:
        """Compare at the end of the script, where it has no iterations; then a probe goes on to its end."""
        own = self._classes.of(rank)
        if own is not None and rank not in self._came and own.first in self._open:
            self._come(own, rank)

    def difference(self) -> MembersDiffer | None:
        """Return where members differ that have not come to be compared, as the run has failed."""
        for own in self._open.values():
            signatures = {
                rank: signature for rank in own.compared if (signature := self._signature(rank)) is not None
            }
            differ = _difference(own, signatures, agree_so_far)
            if differ is not None:
                return differ if isinstance(differ, MembersDiffer) else None
        return None

    def _come(self, own: RankClass, rank: int) -> None:
        """Compare what *rank* has issued with what the others have, if it is the last of them to come."""
        gpu = current_gpu()
        assert gpu is not None
        self._came[rank] = self._known[rank] = signature_of(gpu.score, self._classes.partitions)
        if not self._came.keys() >= {own.first, *own.probes}:
            return

        differ = _difference(own, {rank: self._known[rank] for rank in own.compared}, operator.eq)
        if differ is not None:
            raise differ
        del self._open[own.first]
        own.num_compared = len(self._known[own.first])
        gpus = Gpus.of(self._cluster).of_rank
        compared = (own.first, *own.probes)
        self._merge(own)
        for rank in compared:
            gpus[rank].score.kept_from = None
        if not self._open:
            self._on_settled()

    def _merge(self, own: RankClass) -> None:
        """Let the first of a class speak for those probes whose threads leave."""
        leaving = sorted(own.probes & self._leaving.keys())
        if not leaving:
            return
        gpus = Gpus.of(self._cluster).of_rank
        speaker = gpus[own.first]
        speaker.adopt([gpus[probe] for probe in leaving])
        speaker.players.play()
        self._classes.merge(own, leaving)
        for probe in leaving:
            self._leaving[probe].succeed()

    def _signature(self, rank: int) -> Signature | None:
        """Return what *rank* has issued so far, in this attempt or in an earlier one."""
        gpu = Gpus.of(self._cluster).of_rank.get(rank)
        if rank in self._came or gpu is None:
            return self._known.get(rank)
        return signature_of(gpu.score, self._classes.partitions)


def _difference(
    own: RankClass, signatures: Mapping[int, Signature], agree: Callable[[Signature, Signature], bool]
) -> MembersDiffer | NotSupportedError | None:
    """Return what is raised if ranks of a class have not issued the same, by what these have issued."""
    alike = alike_in(signatures, agree)
    if len(alike) < 2:
        return None

    (first, *_), (other, *_) = alike[:2]
    one, another = signatures[first], signatures[other]
    number = first_difference(one, another)
    assert number is not None
    both = f"ranks {first} and {other}"
    if not only_objects_differ(one, another, number):
        return MembersDiffer(
            f"{both} do not issue the same: {spell(one, number)}, and {spell(another, number)}",
            ranks=own.ranks,
            alike=alike,
        )
    if len(own.ranks) > FEW_RANKS:
        return NotSupportedError(
            f"folding: {both} give other objects to {one[number][2]}, so what the {len(own.ranks)} ranks "
            "that are folded would give is not known; leave the objects out, or run without folding "
            "(fold=False, --fold off)"
        )
    return MembersDiffer(f"{both} give other objects to {one[number][2]}", lambda rank: rank)
