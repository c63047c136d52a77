"""Contracts of the collectives over symbols: what places hold before, and must hold after.

The same as `collectives.program.contracts`, for a solver; a test compares the two for few ranks.
A place is a rank and a chunk; what it holds is said of each contribution: of rank q, to chunk j.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import z3

from collectives.proof.every_size.powers import ROOT

Places = Callable[[Any, Any], Any]
Contents = Callable[[Any, Any, Any, Any], Any]


@dataclass(frozen=True)
class Held:
    """What all places hold.

    Attributes:
        filled: (rank, chunk): whether somebody has put something there.
        holds: (rank, chunk, q, j): whether the contribution of rank q to chunk j is in it.
    """

    filled: Places
    holds: Contents


def _own(rank: Any, chunk: Any, q: Any, j: Any) -> Any:
    return z3.And(q == rank, j == chunk)


def of_owner(rank: Any, chunk: Any, q: Any, j: Any) -> Any:
    """Return that it is what the rank whose chunk it is gave."""
    return z3.And(q == chunk, j == chunk)


def whole(rank: Any, chunk: Any, q: Any, j: Any) -> Any:
    """Return that it is what any rank gave to this chunk."""
    return j == chunk


def _mirrored(rank: Any, chunk: Any, q: Any, j: Any) -> Any:
    return z3.And(q == chunk, j == rank)


def of_root(rank: Any, chunk: Any, q: Any, j: Any) -> Any:
    """Return that it is what the root gave to this chunk."""
    return z3.And(q == ROOT, j == chunk)


def everywhere(rank: Any, chunk: Any) -> Any:
    """Return that all places are filled."""
    return z3.BoolVal(True)


def _at_owner(rank: Any, chunk: Any) -> Any:
    return rank == chunk


def _at_root(rank: Any, chunk: Any) -> Any:
    return rank == ROOT


def where(place: Places, contents: Contents) -> Held:
    """Return that places are filled where *place* says so, and hold *contents* there alone."""
    return Held(place, lambda rank, chunk, q, j: z3.And(place(rank, chunk), contents(rank, chunk, q, j)))


BEFORE: Mapping[str, Held] = {
    "all_reduce": where(everywhere, _own),
    "reduce_scatter": where(everywhere, _own),
    "all_gather": where(_at_owner, _own),
    "broadcast": where(_at_root, _own),
    "reduce": where(everywhere, _own),
    "gather": where(_at_owner, _own),
    "scatter": where(_at_root, _own),
    "all_to_all": where(everywhere, _own),
}
AFTER: Mapping[str, Held] = {
    "all_reduce": where(everywhere, whole),
    "reduce_scatter": where(_at_owner, whole),
    "all_gather": where(everywhere, of_owner),
    "broadcast": where(everywhere, of_root),
    "reduce": where(_at_root, whole),
    "gather": where(_at_root, of_owner),
    "scatter": where(_at_owner, of_root),
    "all_to_all": where(everywhere, _mirrored),
}
"""What must be held; where it says that nothing is filled, anything may be."""

EQUAL_PARTS = ("reduce_scatter", "all_gather", "gather", "scatter", "all_to_all")
"""Collectives whose buffer is one part for each rank; above, each is one chunk."""


def in_parts(held: Held, chunks_per_part: int) -> Held:
    """Return what is *held* of one chunk per part where each part is divided into so many."""
    if chunks_per_part == 1:
        return held

    def holds(rank: Any, chunk: Any, q: Any, j: Any) -> Any:
        same_place = j % chunks_per_part == chunk % chunks_per_part
        return z3.And(same_place, held.holds(rank, chunk / chunks_per_part, q, j / chunks_per_part))

    return Held(lambda rank, chunk: held.filled(rank, chunk / chunks_per_part), holds)
