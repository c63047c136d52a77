"""Mistakes with process groups: made in different orders, or called by two threads that nothing orders.

``new_group`` is a call of all ranks, as torch names groups by their number.  Ranks that make others at the
same place hang, or meet in a group under a name that is another's.

Ranks match calls of a group by their order, so threads that call it at once may match otherwise on each rank;
NCCL's communicators may not be used by two threads at all (NCCL user guide, "Thread Safety").  A run takes
one order of the threads, always the same.  Calls are compared by happens-before
(`collectives.virtual.isolation.turns`).
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from typing import Any, TypeAlias

import torch

from collectives.execution.blame import ranks_by, spell_ranks
from collectives.virtual.diagnosis.places import current_place
from collectives.virtual.diagnosis.watched_calls import WatchedCall
from collectives.virtual.isolation.own_thread import OwnThread
from collectives.virtual.isolation.patching import observed, replaced
from collectives.virtual.isolation.turns import OwnThreads
from collectives.virtual.notices import Findings
from sim.cluster import RankThread

_c10d: Any = torch.distributed.distributed_c10d

_Made: TypeAlias = tuple[tuple[int, ...], str]
"""Members of a group, and where it is made."""


class GroupsMade:
    """Compares the groups that the ranks of one run make; what they make alike is kept once."""

    def __init__(self) -> None:
        self._made: defaultdict[int, list[_Made]] = defaultdict(list)
        self._kept: dict[_Made, _Made] = {}

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch the names that groups get meanwhile; the ranks given to torch may be an iterator."""
        name = "_process_group_name"
        with replaced([(_c10d, name, observed(getattr(_c10d, name), before=self._makes))]):
            yield

    def _makes(self, rank_thread: RankThread, ranks: Sequence[int], use_hashed_name: bool) -> None:
        if ranks and not use_hashed_name:  # hashed where members alone make it; none: the default group
            made = tuple(sorted(ranks)), current_place()
            self._made[rank_thread.rank].append(self._kept.setdefault(made, made))

    def mistakes(self) -> Iterator[str]:
        """Yield where ranks have first made different groups."""
        for number in range(min(map(len, self._made.values()), default=0)):
            ranks = ranks_by({rank: made[number][0] for rank, made in self._made.items()})
            if len(ranks) > 1:
                parts = [
                    f"{spell_ranks(own)} one of {spell_ranks(members)} ({self._made[own[0]][number][1]})"
                    for members, own in ranks.items()
                ]
                yield (
                    f"as group number {number} make {', '.join(parts)}; every rank must make all groups, "
                    "in the same order, those too that it is not in"
                )
                return


class ThreadsOfGroups:
    """Compares the calls of the threads of each rank of one run."""

    def __init__(self) -> None:
        self._last: defaultdict[Hashable, dict[OwnThread, tuple[int, str]]] = defaultdict(dict)
        self._found = Findings()

    def mistakes(self) -> Iterator[str]:
        """Yield what was found, with the ranks that did it."""
        return self._found.texts()

    def began(self, call: WatchedCall) -> None:
        """Compare *call* with the last ones that other threads of the rank have made of its group."""
        rank = call.rank_thread.rank
        threads: OwnThreads | None = call.rank_thread.cluster.shared.get(OwnThreads, {}).get(rank)
        here = None if threads is None else threads.running
        if here is None:
            return
        last = self._last[rank, call.key, call.device_type("")]
        for other, (count, says) in last.items():
            if other is not here and not here.comes_after(other, count):
                what = (
                    f"one thread calls {call.operation} of a group here and another {says}, and nothing says "
                    "which comes first, so ranks may match them otherwise; let one wait for the other, or "
                    "give each a group of its own"
                )
                self._found.add(rank, call.place, what)
                break
        for other in [other for other, (count, _) in last.items() if here.comes_after(other, count)]:
            del last[other]  # who comes after this call comes after that one, too
        last[here] = here.count, f"{call.operation} at {call.place}"
