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


def _of_owner(rank: Any, chunk: Any, q: Any, j: Any) -> Any:
    return z3.And(q == chunk, j == chunk)


def _whole(rank: Any, chunk: Any, q: Any, j: Any) -> Any:
    return j == chunk


def _mirrored(rank: Any, chunk: Any, q: Any, j: Any) -> Any:
    return z3.And(q == chunk, j == rank)


def _of_root(rank: Any, chunk: Any, q: Any, j: Any) -> Any:
    return z3.And(q == ROOT, j == chunk)


def _everywhere(rank: Any, chunk: Any) -> Any:
    return z3.BoolVal(True)


def _at_owner(rank: Any, chunk: Any) -> Any:
    return rank == chunk


def _at_root(rank: Any, chunk: Any) -> Any:
    return rank == ROOT


def _where(place: Places, contents: Contents) -> Held:
    return Held(place, lambda rank, chunk, q, j: z3.And(place(rank, chunk), contents(rank, chunk, q, j)))


BEFORE: Mapping[str, Held] = {
    "all_reduce": _where(_everywhere, _own),
    "reduce_scatter": _where(_everywhere, _own),
    "all_gather": _where(_at_owner, _own),
    "broadcast": _where(_at_root, _own),
    "reduce": _where(_everywhere, _own),
    "gather": _where(_at_owner, _own),
    "scatter": _where(_at_root, _own),
    "all_to_all": _where(_everywhere, _own),
}
AFTER: Mapping[str, Held] = {
    "all_reduce": _where(_everywhere, _whole),
    "reduce_scatter": _where(_at_owner, _whole),
    "all_gather": _where(_everywhere, _of_owner),
    "broadcast": _where(_everywhere, _of_root),
    "reduce": _where(_at_root, _whole),
    "gather": _where(_at_root, _of_owner),
    "scatter": _where(_at_owner, _of_root),
    "all_to_all": _where(_everywhere, _mirrored),
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
