"""Knowledge of trees and of powers of two in proofs for every size."""

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import RecvReduce, Send, algorithm
from collectives.algorithms.double_binary_tree import Tree, position_above, position_in_second, two_trees
from collectives.algorithms.recursive_doubling import recursive_doubling
from collectives.algorithms.shared.power_of_two import floor_log2, require_power_of_two
from collectives.algorithms.tree import tree_gather

z3 = pytest.importorskip("z3", reason="proofs for every size need z3")

from collectives.proof.every_size import scope_of  # noqa: E402
from collectives.proof.every_size.powers import (  # noqa: E402
    DOUBLED,
    FLOOR,
    HALVED,
    NUM_RANKS,
    POWER,
    QUOTIENT,
    START,
    facts_about,
)
from collectives.proof.every_size.symbols import NotProvedError  # noqa: E402
from collectives.proof.every_size.tree_lemmas import prove_tree, prove_trees  # noqa: E402
from collectives.proof.every_size.trees import TREES, SymbolicTree, known_of_both  # noqa: E402


def tables_of(own: SymbolicTree, tree: Tree, num_ranks: int) -> list[Any]:
    """Return that the symbols are those of *tree*."""
    facts = []
    below = {(rank, rank) for rank in range(num_ranks)}
    for rank in range(num_ranks):
        for symbol, table in (
            (own.parent, tree.parent),
            (own.left, tree.left),
            (own.right, tree.right),
            (own.depth, tree.depth),
        ):
            facts.append(symbol(rank) == int(table[rank]))
        above = rank
        while (above := int(tree.parent[above])) >= 0:
            below.add((above, rank))
        if tree.parent[rank] < 0:
            facts.append(own.head == rank)
    ranks = range(num_ranks)
    return facts + [own.below(rank, other) == ((rank, other) in below) for rank in ranks for other in ranks]


def for_all_ranks(axiom, num_ranks: int) -> list[Any]:
    """Return *axiom* for every choice of the ranks that it speaks of."""
    number = axiom.num_vars() if z3.is_quantifier(axiom) else 0
    if not number:
        return [axiom]
    choices = product(map(z3.IntVal, range(num_ranks)), repeat=number)
    return [z3.substitute_vars(axiom.body(), *reversed(choice)) for choice in choices]


@pytest.mark.parametrize("root", [None, 0, 1])
@pytest.mark.parametrize("num_ranks", [2, 3, 4, 5, 7, 8, 9])
def test_what_is_known_of_trees_is_so(num_ranks, root):
    trees = two_trees(num_ranks, root)
    solver = z3.Solver()
    levels = (num_ranks if root is None else num_ranks - 1).bit_length() - (root is None)
    for own, tree in zip(TREES, trees, strict=True):
        solver.add(*tables_of(own, tree, num_ranks))
        for axiom in own.knowledge(num_ranks, levels) if root != 1 else ():  # which has the root as rank 0
            solver.add(*for_all_ranks(axiom, num_ranks))
    for axiom in known_of_both(z3.IntVal(num_ranks), None if root is None else z3.IntVal(root)):
        solver.add(*for_all_ranks(axiom, num_ranks))

    assert solver.check() == z3.sat


@pytest.mark.parametrize("rooted", [False, True])
def test_ranks_are_at_these_positions_of_both_trees(rooted):
    for num_ranks in range(2, 65):
        root = num_ranks // 3 if rooted else None
        count = num_ranks - rooted
        ranks = [(root + 1 + number) % num_ranks if root is not None else number for number in range(count)]
        numbers = np.arange(count)
        by_tree = numbers + 1, position_in_second(numbers, count)
        for tree, positions in zip(two_trees(num_ranks, root), by_tree, strict=True):
            rank_at = {0: -1 if root is None else root, **dict(zip(positions, ranks, strict=True))}
            for position, rank in zip(positions, ranks, strict=True):
                assert tree.parent[rank] == rank_at[int(position_above(position, count))]


def shifted(change: int):
    def above(position, count):
        bit = position & -position
        up = (position ^ bit) | (bit << change)
        return z3.If(up > count, position ^ bit, up)

    return above


def to_odd_positions(position, count):
    up = shifted(1)(position, count)
    return z3.If(z3.And(position == 6, count == 100), 5, up)


def second(change: int = 0):
    def rule(number, count):
        wrapped = z3.If(number + 1 == count, 1, number + 2)
        return z3.If(count & 1 == 0, z3.If(count == 100, count - number + change, count - number), wrapped)

    return rule


def test_another_rule_makes_no_tree():
    prove_tree(shifted(1))
    with pytest.raises(NotProvedError, match="not proved of its tree"):
        prove_tree(shifted(2))
    with pytest.raises(NotProvedError, match="not proved of its tree"):
        prove_trees(to_odd_positions, second())


@pytest.mark.costly
def test_a_rule_that_places_ranks_otherwise_is_refuted():
    prove_trees(shifted(1), second())
    with pytest.raises(NotProvedError, match="not proved of its tree: a position of the second tree"):
        prove_trees(shifted(1), second(1))


@pytest.mark.parametrize("shipped", [recursive_doubling, tree_gather], ids=lambda own: own.name)
def test_programs_of_powers_of_two_are_proved_for_every_size(shipped):
    assert scope_of(shipped).sizes == "every size"


def exchange_all(rank: int, world_size: int):
    require_power_of_two(world_size, "exchange_all", "another")
    for step in range(floor_log2(world_size)):
        yield Send(rank ^ (1 << step), 0), RecvReduce(rank ^ (1 << step), 0)


def test_a_program_that_refuses_other_sizes_is_proved_for_powers_of_two():
    named = algorithm(name="recursive_doubling", num_chunks=1)(exchange_all)
    assert scope_of(named).sizes == "2^k"


@settings(max_examples=20)
@given(
    num_ranks=st.integers(2, 40),
    levels=st.sets(st.integers(-1, 6), max_size=4),
    numbers=st.sets(st.integers(-9, 70), max_size=3),
)
def test_facts_are_true(num_ranks, levels, numbers):
    solver = z3.Solver()
    floor = num_ranks.bit_length() - 1
    solver.add(num_ranks == NUM_RANKS, floor == FLOOR)
    known = {level for level in (0, floor, *levels) if level >= 0}
    solver.add(*(POWER(level) == 1 << level for level in known))
    solver.add(*(START(x, level) == x >> level << level for x in numbers for level in known))
    solver.add(*(QUOTIENT(x, level) == x >> level for x in numbers for level in known))
    resized = [(HALVED(x, floor), x >> floor + 1 << floor) for x in numbers]
    resized += [(DOUBLED(x, floor), x >> floor << floor + 1) for x in numbers]
    solver.add(*(term == value for term, value in resized))
    solver.add(*(START(x, level) == x >> level << level for _, x in resized for level in (*known, floor + 1)))
    asked = [term >= 0 for term, _ in resized]
    asked += [START(x, level) >= QUOTIENT(x, level) * POWER(level) for x in numbers for level in levels]
    solver.add(*facts_about([*asked, POWER(FLOOR) >= 1]))
    assert solver.check() == z3.sat
