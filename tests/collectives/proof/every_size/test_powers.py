"""Proofs for every size of programs whose distances double or halve."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import RecvReduce, Send, algorithm
from collectives.algorithms.recursive_doubling import recursive_doubling
from collectives.algorithms.shared.power_of_two import floor_log2, require_power_of_two
from collectives.algorithms.tree import tree_gather
from collectives.program import Algorithm

z3 = pytest.importorskip("z3", reason="proofs for every size need z3")

from collectives.proof.every_size import prove_every_size  # noqa: E402
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


@pytest.mark.parametrize("shipped", [recursive_doubling, tree_gather], ids=lambda own: own.name)
def test_programs_of_powers_of_two_are_proved_for_every_size(shipped: Algorithm) -> None:
    assert prove_every_size(shipped) == "every size"


def exchange_all(rank: int, world_size: int) -> Any:
    require_power_of_two(world_size, "exchange_all", "another")
    for step in range(floor_log2(world_size)):
        yield Send(rank ^ (1 << step), 0), RecvReduce(rank ^ (1 << step), 0)


def test_a_program_that_refuses_other_sizes_is_proved_for_powers_of_two() -> None:
    named = algorithm(name="recursive_doubling", num_chunks=1)(exchange_all)
    assert prove_every_size(named) == "2^k"


@settings(max_examples=20)
@given(
    num_ranks=st.integers(2, 40),
    levels=st.sets(st.integers(-1, 6), max_size=4),
    numbers=st.sets(st.integers(-9, 70), max_size=3),
)
def test_facts_are_true(num_ranks: int, levels: set[int], numbers: set[int]) -> None:
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
