"""Groups made: process groups that ranks make in different orders, or that only some of them make.

``new_group`` is a call of all ranks, as torch names groups by their number.  Ranks that make others at the
same place hang, or meet in a group under a name that is another's.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import torch

from collectives.execution.blame import spell_ranks
from collectives.virtual.diagnosis.places import current_place
from collectives.virtual.isolation.patching import replaced
from sim.cluster import current_rank_thread

_c10d: Any = torch.distributed.distributed_c10d


class GroupsMade:
    """Compares the groups that the ranks of one run make."""

    def __init__(self) -> None:
        self._made: defaultdict[int, list[tuple[tuple[int, ...] | None, str]]] = defaultdict(list)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch meanwhile."""
        original = _c10d._new_group_with_tag

        def watched(ranks: Any = None, *args: Any, **kwargs: Any) -> Any:
            rank_thread = current_rank_thread()
            if rank_thread is not None and not kwargs.get("use_local_synchronization", False):
                members = None if ranks is None else tuple(sorted(ranks))
                self._made[rank_thread.rank].append((members, current_place()))
            return original(ranks, *args, **kwargs)

        with replaced([(_c10d, "_new_group_with_tag", watched)]):
            yield

    def mistakes(self) -> Iterator[str]:
        """Yield where ranks have first made different groups."""
        for number in range(min(map(len, self._made.values()), default=0)):
            ranks: defaultdict[tuple[int, ...] | None, list[int]] = defaultdict(list)
            for rank, made in self._made.items():
                ranks[made[number][0]].append(rank)
            if len(ranks) > 1:
                parts = [
                    f"{spell_ranks(own)} one of {_spell(members)} ({self._made[own[0]][number][1]})"
                    for members, own in ranks.items()
                ]
                yield (
                    f"as group number {number} make {', '.join(parts)}; every rank must make all groups, "
                    "in the same order, those too that it is not in"
                )
                return


def _spell(members: tuple[int, ...] | None) -> str:
    return "all ranks" if members is None else spell_ranks(members)
