"""Invariants of the loops of shipped programs: who holds what when an iteration begins.

An invariant is a hint, not a second description of the program: a wrong one proves nothing, because the
steps that it must survive are those of the program itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import z3

from collectives.proof.every_size.block_invariants import BLOCK_INVARIANTS, from_root
from collectives.proof.every_size.demands import Held, everywhere, of_owner, of_root, where, whole
from collectives.proof.every_size.powers import CEILING, FLOOR, ROOT
from collectives.proof.every_size.stored_invariants import (
    PAT_ENUMERATIONS,
    PAT_INVARIANTS,
    arranged,
    travelled,
    written,
)
from collectives.proof.every_size.symbols import modulo
from collectives.proof.every_size.trees import TREES, SymbolicTree

SEGMENTS = 4
"""Of a double binary tree, by default."""

Invariant = Callable[[Any, Any], Held]
"""Of (loop variable, number of ranks p)."""


@dataclass(frozen=True)
class Between:
    """What is known between two steps of a turn.

    Attributes:
        held: of (loop variable, number of ranks p): what is held.
        written: of (loop variable, chunk), where the step before writes blocks of chunks: in which of two
            cases that chunk is, and for which value of its variable the step has written it in either.
    """

    held: Invariant
    written: Callable[[Any, Any], tuple[Any, Any, Any]]


@dataclass(frozen=True)
class Turn:
    """What is known of a loop: the *invariant*, and what holds *between* the steps of a turn."""

    invariant: Invariant
    between: tuple[Between, ...] = ()


def _collected(shift: int) -> Invariant:
    """After s steps of a ring a chunk has passed s ranks behind the one where it began."""

    def held(s: Any, p: Any) -> Held:
        def holds(rank: Any, chunk: Any, q: Any, j: Any) -> Any:
            passed = modulo(rank - chunk - 1 + shift, p)
            behind = modulo(q - chunk - 1 + shift, p)
            return z3.And(j == chunk, z3.If(passed <= s, behind <= passed, q == rank))

        return Held(everywhere, holds)

    return held


def _gathered(s: Any, p: Any) -> Held:
    """After s steps of a ring a chunk is with s ranks after its own."""
    return where(lambda rank, chunk: modulo(rank - chunk, p) <= s, of_owner)


def _spread(s: Any, p: Any) -> Held:
    """As `_gathered`, of chunks that all ranks had collected: elsewhere they are whole in part."""

    def holds(rank: Any, chunk: Any, q: Any, j: Any) -> Any:
        whole = modulo(rank - chunk + 1, p) <= s
        return z3.And(j == chunk, z3.Or(whole, modulo(q - chunk, p) <= modulo(rank - chunk, p)))

    return Held(everywhere, holds)


def _collected_downwards(t: Any, p: Any) -> Held:
    """After t segments, two to a chunk, a chunk has passed t / 2 ranks below the one where it began."""

    def holds(rank: Any, segment: Any, q: Any, j: Any) -> Any:
        passed, behind = (modulo(segment / 2 - 1 - place, p) for place in (rank, q))
        return z3.And(j == segment, z3.If(2 * passed <= t, behind <= passed, q == rank))

    return Held(everywhere, holds)


def _spread_downwards(t: Any, p: Any) -> Held:
    """After t segments, two to a chunk, a whole chunk is with t / 2 ranks below its own."""
    return Held(lambda rank, segment: 2 * modulo(segment / 2 - rank, p) <= t, whole)


def _gathered_in_halves(s: Any, p: Any) -> Held:
    """After s steps of a ring both halves of a part are with s ranks after its own."""
    return Held(
        lambda rank, half: modulo(rank - half / 2, p) <= s,
        lambda rank, half, q, j: z3.And(q == half / 2, j == half),
    )


def _rank_0_collects(other: Any, p: Any) -> Held:
    """Rank 0 has what the ranks before *other* gave; the others still have their own."""
    return Held(
        everywhere, lambda rank, chunk, q, j: z3.And(j == chunk, z3.If(rank == 0, q < other, q == rank))
    )


def _rank_0_returns(other: Any, p: Any) -> Held:
    """Ranks before *other* have everything; the others still have their own."""
    return Held(everywhere, lambda rank, chunk, q, j: z3.And(j == chunk, z3.Or(rank < other, q == rank)))


def _down_the_chain(t: Any, p: Any) -> Held:
    """Segment c is with the rank at place k from step k + c on."""
    from_0 = where(lambda rank, chunk: z3.Or(rank == 0, t >= rank + chunk), whole)
    return Held(from_0.filled, lambda rank, chunk, q, j: z3.And(from_0.holds(rank, chunk, q, j), q == 0))


def _up_the_chain(t: Any, p: Any) -> Held:
    """Segment c has what lies behind place k from step p - 1 - k + c on."""

    def holds(rank: Any, chunk: Any, q: Any, j: Any) -> Any:
        return z3.And(j == chunk, z3.If(t >= chunk + p - 1 - rank, q >= rank, q == rank))

    return Held(everywhere, holds)


def _up_and_down(t: Any, p: Any) -> Held:
    """Both: segment c is whole at place k from step p - 1 + k + c on."""
    up = _up_the_chain(t, p)

    def holds(rank: Any, chunk: Any, q: Any, j: Any) -> Any:
        returned = z3.And(j == chunk, t >= chunk + p - 1 + rank)
        return z3.Or(returned, up.holds(rank, chunk, q, j))

    return Held(everywhere, holds)


def _double(d: Any, p: Any) -> Held:
    """Before the step at distance d a rank has its own part and those of the d - 1 ranks after it."""
    return where(lambda rank, chunk: modulo(chunk - rank, p) < d, of_owner)


def _up_two_trees(t: Any, p: Any) -> Held:
    """Segment s has what is below a rank at depth d from step s + h - d on, in trees of height h."""

    def holds(rank: Any, chunk: Any, q: Any, j: Any) -> Any:
        def in_tree(tree: SymbolicTree, segment: Any) -> Any:
            reduced = t >= segment + CEILING - tree.depth(rank)
            return z3.If(reduced, tree.below(rank, q), q == rank)

        return z3.And(j == chunk, _in_its_tree(chunk, in_tree))

    return Held(everywhere, holds)


def _down_two_trees(t: Any, p: Any) -> Held:
    """Segment s is with a rank at depth d from step s + d on, and with the root."""

    def filled(rank: Any, chunk: Any) -> Any:
        def in_tree(tree: SymbolicTree, segment: Any) -> Any:
            return z3.Or(rank == ROOT, t >= segment + tree.depth(rank))

        return _in_its_tree(chunk, in_tree)

    return where(filled, of_root)


def _up_and_down_two_trees(t: Any, p: Any) -> Held:
    """Segment s goes up as in a reduce, turns back at step s + h, and is at depth d after d more."""

    def holds(rank: Any, chunk: Any, q: Any, j: Any) -> Any:
        def in_tree(tree: SymbolicTree, segment: Any) -> Any:
            reduced, back = (t >= segment + FLOOR + turn * tree.depth(rank) for turn in (-1, 1))
            return z3.Or(back, z3.If(reduced, tree.below(rank, q), q == rank))

        return z3.And(j == chunk, _in_its_tree(chunk, in_tree))

    return Held(everywhere, holds)


def _in_its_tree(chunk: Any, said: Callable[[SymbolicTree, Any], Any]) -> Any:
    """Return what is *said* of the tree that carries *chunk*, and of the segment that it is there."""
    return z3.If(chunk < SEGMENTS, said(TREES[0], chunk), said(TREES[1], chunk - SEGMENTS))


ENUMERATIONS = PAT_ENUMERATIONS
"""Of the sums over powers of two in a program."""

INVARIANTS: Mapping[tuple[str, str], tuple[Invariant | Turn, ...]] = {
    ("ring", "all_reduce"): (_collected(1), _spread),
    ("ring", "reduce_scatter"): (_collected(0),),
    ("ring", "all_gather"): (_gathered,),
    ("gloo_ring", "all_reduce"): (_collected_downwards, _spread_downwards),
    ("gloo_ring", "reduce_scatter"): (_collected_downwards, _spread_downwards),
    ("gloo_ring", "all_gather"): (_gathered_in_halves,),
    ("gloo_ring", "reduce"): (_collected_downwards,),
    ("naive", "all_reduce"): (_rank_0_collects, _rank_0_returns),
    ("bruck", "all_gather"): (_double,),
    ("bruck", "all_to_all"): (Turn(travelled, (Between(arranged, written),)),),
    ("double_binary_tree", "all_reduce"): (_up_and_down_two_trees,),
    ("double_binary_tree", "broadcast"): (_down_two_trees,),
    ("double_binary_tree", "reduce"): (_up_two_trees,),
    ("chain", "broadcast"): (from_root(_down_the_chain),),
    ("chain", "reduce"): (from_root(_up_the_chain),),
    ("chain", "all_reduce"): (_up_and_down,),
    **BLOCK_INVARIANTS,
    **PAT_INVARIANTS,
}
"""Of each loop of a program, in order; programs without loops over steps need none."""
