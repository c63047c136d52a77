"""Proofs for every size of programs whose distances double or halve."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectives import NotSupportedError, ProgramError, RecvReduce, Send, algorithm, verify
from collectives.algorithms import ALGORITHMS
from collectives.algorithms.shared.power_of_two import Fold, floor_log2, require_power_of_two
from collectives.program import Algorithm
from tests.collectives.proof.every_size.mutants import slips

z3 = pytest.importorskip("z3", reason="proofs for every size need z3")

from collectives.proof.every_size import NotProvedError, prove_every_size  # noqa: E402
from collectives.proof.every_size.powers import FLOOR, NUM_RANKS, POWER, START, facts_about  # noqa: E402

HALVING, RECURSIVE, TREE, ROOTED = (
    import_module(f"collectives.algorithms.{name}")
    for name in ("halving_doubling", "recursive_doubling", "tree", "shared.rooted_tree")
)
OF_FOLD = ("to_host", "to_leaf", "among_hosts", "first_chunk", "core_rank", "is_leaf", "is_host")
MADE_OF = {
    ("recursive_doubling", "all_reduce"): [(RECURSIVE, "exchange_all")],
    ("recursive_doubling", "all_gather"): [(Fold, name) for name in OF_FOLD],
    ("halving_doubling", "all_reduce"): [
        (HALVING, name) for name in ("_halve", "double", "_distance", "_core", "folded")
    ],
    ("halving_doubling", "reduce_scatter"): [(HALVING, "folded_reduce_scatter"), (HALVING, "_halve")],
    ("halving_doubling", "all_gather"): [(HALVING, "folded_all_gather"), (HALVING, "double")],
    ("tree", "broadcast"): [(TREE, "_branches"), (TREE, "broadcast")],
    ("tree", "reduce"): [(TREE, "_branches"), (TREE, "reduce")],
    ("tree", "gather"): [(TREE, "_branches"), (TREE, "gather"), (ROOTED, "_parts")],
    ("tree", "scatter"): [(TREE, "_branches"), (TREE, "scatter"), (ROOTED, "_parts")],
}
"""Of the programs: where the functions are found that they are made of, and their names."""

SHIPPED = [own for own in ALGORITHMS if (own.name, own.collective) in MADE_OF]
FEW = 2
"""Mutants of each program that are tried where all of them would take too long."""


def names(shipped: Algorithm) -> str:
    return f"{shipped.collective}-{shipped.name}"


@pytest.mark.parametrize("name", ["recursive_doubling", "tree"])
def test_programs_of_powers_of_two_are_proved_for_every_size(name: str) -> None:
    (shipped,) = (own for own in SHIPPED if own.name == name and own.collective in ("all_reduce", "gather"))
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
    asked = [START(x, level) >= POWER(level) for x in numbers for level in levels]
    solver.add(*facts_about([*asked, POWER(FLOOR) >= 1]))
    assert solver.check() == z3.sat


def mutants(shipped: Algorithm) -> Iterator[tuple[Any, str, str, Any]]:
    """Yield a slip in each function of *shipped*: where it is, its name, what it says, and the mutant."""
    for where, name in MADE_OF[shipped.name, shipped.collective]:
        found = vars(where)[name]
        for what, changed in slips(found.fget if isinstance(found, property) else found):
            yield where, name, what, property(changed) if isinstance(found, property) else changed


def is_wrong(mutant: Algorithm, sizes: Iterable[int]) -> bool:
    """Return whether *mutant* is wrong, or refuses, for some number of ranks in *sizes*."""
    for world_size in sizes:
        try:
            verify(mutant, world_size)
        except (ProgramError, NotSupportedError):
            return True
    return False


def judge(shipped: Algorithm, tried: list[tuple[Any, str, str, Any]]) -> None:
    named = replace(shipped, declared_cost=None)
    for where, name, what, changed in tried:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(where, name, changed)
            proved_for: Iterable[int] = ()
            if is_wrong(named, range(2, 17)):
                with suppress(NotProvedError):
                    proved_for = range(2, 17) if prove_every_size(named) == "every size" else (2, 4, 8, 16)
            assert not is_wrong(named, proved_for), f"proved, but wrong: {name}: {what}"


@pytest.mark.parametrize("shipped", SHIPPED, ids=names)
def test_no_program_with_a_slip_is_proved(shipped: Algorithm) -> None:
    found = list(mutants(shipped))
    judge(shipped, random.Random(names(shipped)).sample(found, FEW))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("shipped", SHIPPED, ids=names)
def test_no_program_with_any_slip_is_proved(shipped: Algorithm) -> None:
    judge(shipped, list(mutants(shipped)))
