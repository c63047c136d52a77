"""Verification that ranks of one class do the same: two of them run the first iteration.

The first rank of a class and its probe, the last, are compared in their second iteration, at its first
collective of more than 4,096 elements or at its end, so that what a script does between two iterations, such
as to print its loss, is in it; or at the end of the script.  If they have issued the same, the probe's thread
ends, and its rank goes on with what the first one issues.  If not, `MembersDiffer`: the run begins anew with
smaller classes.  What a rank has issued in an earlier attempt is known, so it needs no thread again to be
compared with.

What that cannot find: a rank between the two that alone does something else, and differences that begin
after that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import simpy

from collectives.errors import NotSupportedError
from collectives.execution.blame import spell_ranks
from collectives.virtual.folding.classes import Classes, MembersDiffer, RankClass
from collectives.virtual.folding.signature import (
    Signature,
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
    """Compares members of the classes of one attempt.

    Args:
        cluster: on which they run.
        classes: the classes.
        known: signatures of ranks from earlier attempts, which get those of this one.
        on_settled: called when nothing is left to compare.
    """

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
        self._open = {own.first: own for own in classes.folded if not _is_known(own, known)}
        self._came: dict[int, Signature] = {}
        self._iterations: dict[int, int] = {}
        self._looked_at: dict[int, int] = {}
        self._merged: dict[int, simpy.Event] = {}
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
        self._look_for_unequal_parts(rank_thread.rank)
        if self._iterations.get(rank_thread.rank):
            self._compare(rank_thread)

    def _look_for_unequal_parts(self, rank: int) -> None:
        own, part_of = self._classes.of(rank), self._classes.part_of
        num_divisions = len(self._classes.divisions)
        if own is None or self._looked_at.get(own.first, 0) == num_divisions:
            return
        self._looked_at[own.first] = num_divisions
        if len({part_of(member) for member in own.ranks}) > 1:
            divided = ", ".join(map(str, self._classes.divisions))
            raise MembersDiffer(f"{spell_ranks(own.ranks)}: unequal parts of {divided}", part_of)

    def _compare(self, rank_thread: RankThread) -> None:
        """Compare what a rank has issued so far; a probe that does the same leaves."""
        rank = rank_thread.rank
        own = self._classes.of(rank)
        if own is None or rank in self._came or own.first not in self._open:
            return
        is_probe = rank == own.probe
        self._come(own, rank)
        if is_probe:
            if own.probe is not None:
                self._merged[rank] = self._cluster.env.event()
                rank_thread.wait(
                    self._merged[rank], lambda: f"rank {own.first} to come to its second iteration"
                )
            rank_thread.leave()

    def finish(self, rank: int) -> None:
        """Compare at the end of the script, where it has no iterations; then a probe goes on to its end."""
        own = self._classes.of(rank)
        if own is not None and rank not in self._came and own.first in self._open:
            self._come(own, rank, merges=False)

    def difference(self) -> MembersDiffer | None:
        """Return where members differ that have not come to be compared, as the run has failed."""
        for own in self._open.values():
            ends = [self._signature(own.first), self._signature(own.ranks[-1])]
            if None not in ends:
                one, other = (end or () for end in ends)
                shorter = min(len(one), len(other))
                if one[:shorter] != other[:shorter]:
                    differ = _differ(own, one, other)
                    return differ if isinstance(differ, MembersDiffer) else None
        return None

    def _come(self, own: RankClass, rank: int, merges: bool = True) -> None:
        gpu = current_gpu()
        assert gpu is not None
        self._came[rank] = self._known[rank] = signature_of(gpu.score, self._classes.partitions)
        last = own.ranks[-1]
        other = self._came.get(last) if own.probe is not None else self._known.get(last)
        if own.first not in self._came or other is None:
            return

        if self._came[own.first] != other:
            raise _differ(own, self._came[own.first], other)
        del self._open[own.first]
        gpus = Gpus.of(self._cluster).of_rank
        if merges and own.probe is not None:
            self._merge(own, own.probe)
        for rank in (own.first, last):
            if rank in gpus:
                gpus[rank].score.kept_from = None
        if not self._open:
            self._on_settled()

    def _merge(self, own: RankClass, probe: int) -> None:
        gpus = Gpus.of(self._cluster).of_rank
        speaker = gpus[own.first]
        speaker.adopt(gpus[probe])
        speaker.players.play()
        self._classes.merge(own)
        if probe in self._merged:
            self._merged[probe].succeed()

    def _signature(self, rank: int) -> Signature | None:
        """Return what *rank* has issued so far, in this attempt or in an earlier one."""
        gpu = Gpus.of(self._cluster).of_rank.get(rank)
        if rank in self._came or gpu is None:
            return self._came.get(rank) or self._known.get(rank)
        return signature_of(gpu.score, self._classes.partitions)


def _differ(own: RankClass, one: Signature, other: Signature) -> MembersDiffer | NotSupportedError:
    """Return what is raised as the first and the last of a class have not issued the same."""
    number = first_difference(one, other)
    assert number is not None
    ends = f"ranks {own.first} and {own.ranks[-1]}"
    if not only_objects_differ(one, other, number):
        return MembersDiffer(
            f"{ends} do not issue the same: {spell(one, number)}, and {spell(other, number)}",
            ranks=own.ranks,
        )
    if len(own.ranks) > FEW_RANKS:
        return NotSupportedError(
            f"folding: {ends} give other objects to {one[number][2]}, so what the {len(own.ranks)} ranks "
            "that are folded would give is not known; leave the objects out, or run without folding "
            "(fold=False, --fold off)"
        )
    return MembersDiffer(f"{ends} give other objects to {one[number][2]}", lambda rank: rank)


def _is_known(own: RankClass, known: Mapping[int, Signature]) -> bool:
    """Return whether the first and the last of a class are known to do the same."""
    first, last = own.ranks[0], own.ranks[-1]
    return first == last or (first in known and known[first] == known.get(last))
