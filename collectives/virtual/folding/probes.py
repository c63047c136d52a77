"""Probes of a class: the ranks that run beside its first until they have been compared with it.

Scripts ask of a rank whether it is the first or the last, of all or of its node, and whether it is odd or
even; who names a single one likes powers of two.  So those are compared: the last rank, the first one of the
last node and the last one of the first node, the least power of two and its successor, and two drawn between
first and last, one in each half of the class, one odd and one even.  The draw depends on the class alone, so
that a run does the same again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import pairwise
from random import Random
from typing import TypeAlias

MOST_PROBES = 7
"""Probes of one class."""

ALL_PROBES = 14
"""Probes of all classes together, by how many ranks they have; each has at least one, its last rank."""

Alike: TypeAlias = tuple[tuple[int, ...], ...]
"""Ranks of one class that were compared, by what they do: those that do the same are together."""

Key: TypeAlias = Callable[[int], Hashable]


def probes_of(ranks: Sequence[int], ranks_per_node: int, num_folded: int | None = None) -> tuple[int, ...]:
    """Return which of *ranks*, a class in order, are compared with its first.

    Args:
        ranks: in order, at least one.
        ranks_per_node: of the topology.
        num_folded: ranks of all classes, which share what all together may have; by default of this one.
    """
    share = ALL_PROBES * len(ranks) // (num_folded or len(ranks))
    most = max(1, min(MOST_PROBES, share))
    wanted = dict.fromkeys(rank for rank in _candidates(ranks, ranks_per_node) if rank != ranks[0])
    return tuple(sorted(list(wanted)[:most]))


def _candidates(ranks: Sequence[int], ranks_per_node: int) -> Iterator[int]:
    """Yield ranks to compare, the more telling first."""
    yield ranks[-1]
    yield from _drawn(ranks[1:-1])
    power = next((rank for rank in ranks[1:] if _is_power_of_two(rank)), None)
    if power is not None:
        yield power
        if power + 1 in ranks:
            yield power + 1
    first_node, last_node = ranks[0] // ranks_per_node, ranks[-1] // ranks_per_node
    yield next(rank for rank in ranks if rank // ranks_per_node == last_node)
    yield next(rank for rank in reversed(ranks) if rank // ranks_per_node == first_node)


def _drawn(between: Sequence[int]) -> Iterator[int]:
    """Yield a rank of each half of those between the first and the last, of either parity if there is one."""
    random = Random(f"{len(between)} {sum(between)}")
    middle = len(between) // 2
    parity = random.randrange(2)
    for half, wanted in ((between[:middle], parity), (between[middle:], 1 - parity)):
        fitting = [rank for rank in half if rank % 2 == wanted] or half
        if fitting:
            yield random.choice(fitting)


def key_of(alike: Alike, num_ranks: int, ranks_per_node: int) -> Key | None:
    """Return what tells those that do the same from the others, by a rank's number alone; None: unknown.

    Of the keys that are known to scripts the first counts by which no two that differ are the same, and two
    that were compared are.
    """
    for key in _keys(num_ranks, ranks_per_node):
        group_of: dict[Hashable, int] = {}
        values = [(key(rank), number) for number, group in enumerate(alike) for rank in group]
        is_right = all(group_of.setdefault(value, number) == number for value, number in values)
        if is_right and 1 < len(group_of) < len(values):
            return key
    return None


def _keys(num_ranks: int, ranks_per_node: int) -> Iterator[Key]:
    """Yield what scripts ask of a rank, the coarser first."""
    last_node = (num_ranks - 1) // ranks_per_node
    yield lambda rank: rank % 2
    yield lambda rank: rank // ranks_per_node == 0
    yield lambda rank: rank // ranks_per_node == last_node
    yield lambda rank: rank % ranks_per_node == 0
    yield lambda rank: rank % ranks_per_node == ranks_per_node - 1
    yield lambda rank: rank < num_ranks // 2
    yield _is_power_of_two
    yield lambda rank: rank % ranks_per_node


def _is_power_of_two(rank: int) -> bool:
    return rank > 0 and rank & (rank - 1) == 0


def cuts_of(ranks: Sequence[int], alike: Alike) -> tuple[int, ...]:
    """Return at which places of *ranks* to cut where those that do the same are neighbours; else none.

    Between two neighbours that differ, and are known, lies the cut: in the middle.
    """
    number_of = {rank: number for number, group in enumerate(alike) for rank in group}
    compared = sorted(number_of)
    changes = [(one, other) for one, other in pairwise(compared) if number_of[one] != number_of[other]]
    if len(changes) != len(alike) - 1:
        return ()
    place = {rank: place for place, rank in enumerate(ranks)}
    return tuple((place[one] + place[other] + 1) // 2 for one, other in changes)
