"""Ranks divided into nodes: every number of ranks and ranks per node, and what ranks of nodes hold.

As `invariants`, what is said here of a program is a hint: a wrong one proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import z3

from collectives.proof.every_size.demands import Held, everywhere, whole
from collectives.proof.every_size.products import DIVIDED, REMAINDER, by_choice, simple, times

SIZE, LAST, COUNT = z3.Ints("size last count")
"""Ranks of a node, ranks of the last node, and the number of nodes."""

PARAMETERS = (SIZE, LAST, COUNT)


@dataclass(frozen=True)
class Nodes:
    """*count* nodes of *size* ranks, of which the last has *last*.

    Attributes:
        ranks_per_node: for which a program divides ranks so.
        case: what holds of all these.
        share: of the chunks, that of a rank in a node of *size*; and *last_share* in the last.
    """

    size: Any
    last: Any
    count: Any
    ranks_per_node: Any
    case: tuple[Any, ...]
    share: Any = None
    last_share: Any = None

    @property
    def num_ranks(self) -> Any:
        """How many ranks there are."""
        return simple((self.count - 1) * self.size + self.last)

    def of_chunks(self, quotient: Callable[[Any], Any]) -> Nodes:
        """Return it with the shares, which *quotient* tells for a number of ranks."""
        return replace(self, share=quotient(self.size), last_share=quotient(self.last))

    def node(self, rank: Any) -> Any:
        """Return in which node *rank* is."""
        return DIVIDED(rank, self.size)

    def place(self, rank: Any) -> Any:
        """Return which of its node *rank* is."""
        return REMAINDER(rank, self.size)

    def in_last(self, rank: Any) -> Any:
        """Return whether *rank* is in the last node."""
        return self.node(rank) == self.count - 1

    def begin(self, rank: Any) -> Any:
        """Return where the share of *rank* begins."""
        return times(self.place(rank), z3.If(self.in_last(rank), self.last_share, self.share))

    def owns(self, rank: Any, chunk: Any) -> Any:
        """Return whether *chunk* is in the share of *rank*."""
        end = times(self.place(rank) + 1, z3.If(self.in_last(rank), self.last_share, self.share))
        return z3.And(chunk >= self.begin(rank), chunk < end)

    def place_elsewhere(self, rank: Any, chunk: Any) -> Any:
        """Return which place has *chunk* in nodes of the other size than that of *rank*."""
        other = z3.If(self.in_last(rank), self.share, self.last_share)
        return by_choice(DIVIDED, chunk, other)


DIVISIONS = (
    Nodes(SIZE, SIZE, COUNT, SIZE, (SIZE >= 1, COUNT >= 1)),
    Nodes(SIZE, LAST, COUNT, SIZE, (LAST >= 1, LAST < SIZE, COUNT >= 2)),
    Nodes(LAST, LAST, z3.IntVal(1), SIZE, (LAST >= 1, LAST < SIZE)),
)
"""What any number of ranks and of ranks per node comes to: nodes alike; a smaller last node; one node that is
smaller than it could be."""


@dataclass(frozen=True)
class Stage:
    """What is known after parts side by side.

    Attributes:
        held: what all ranks hold then, wherever it says that something is filled.
        giver: (rank, chunk, q): which member of the part had there what q contributed.
        piece: (rank, chunk): which part it is that has *chunk*, where a rank takes part in several.
    """

    held: Held
    giver: Callable[[Any, Any, Any], Any]
    piece: Callable[[Any, Any], Any] | None = None


def _hierarchical(nodes: Nodes) -> tuple[Stage, ...]:
    """Each node has reduced its own; then nodes among each other; then each rank has everything."""

    def within_node(rank: Any, chunk: Any, q: Any, j: Any) -> Any:
        return z3.And(j == chunk, nodes.node(q) == nodes.node(rank))

    def owner(rank: Any, chunk: Any, q: Any) -> Any:
        share = z3.If(nodes.in_last(rank), nodes.last_share, nodes.share)
        return by_choice(DIVIDED, chunk, share)

    return (
        Stage(Held(nodes.owns, within_node), lambda rank, chunk, q: nodes.place(q)),
        Stage(
            Held(nodes.owns, whole),
            lambda rank, chunk, q: nodes.node(q),
            nodes.place_elsewhere,
        ),
        Stage(Held(everywhere, whole), owner),
    )


STAGES: Mapping[tuple[str, str], Callable[[Nodes], tuple[Stage, ...]]] = {
    ("hierarchical", "all_reduce"): _hierarchical,
}
"""Of each row of parts of a program, in order."""
