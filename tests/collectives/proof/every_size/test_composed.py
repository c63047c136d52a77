"""Proofs for every size of programs that are made of several functions: none with a slip is proved."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

from collectives import NotSupportedError, ProgramError, verify
from collectives.algorithms import ALGORITHMS, NATIVE_ALGORITHMS
from collectives.algorithms.shared.power_of_two import Fold
from collectives.program import Algorithm
from tests.collectives.proof.every_size.mutants import slips

z3 = pytest.importorskip("z3", reason="proofs for every size need z3")

from collectives.proof.every_size import NotProvedError, prove_every_size  # noqa: E402

BRUCK, HALVING, RECURSIVE, TREE, ROOTED, GLOO, PAT = (
    import_module(f"collectives.algorithms.{name}")
    for name in (
        "bruck",
        "halving_doubling",
        "recursive_doubling",
        "tree",
        "shared.rooted_tree",
        "gloo.ring",
        "pat",
    )
)
OF_FOLD = ("to_host", "to_leaf", "among_hosts", "first_chunk", "core_rank", "is_leaf", "is_host")
OF_PAT = (
    "_aggregating",
    "_visiting",
    "_stored",
    "_num_parts",
    "_block",
    "_place",
    "_displacement",
    "_arriving",
)
MADE_OF = {
    ("bruck", "all_to_all"): [(BRUCK, name) for name in ("_moves", "_place", "_num_staying")],
    ("recursive_doubling", "all_reduce"): [(RECURSIVE, "exchange_all")],
    ("recursive_doubling", "all_gather"): [(Fold, name) for name in OF_FOLD],
    ("halving_doubling", "all_reduce"): [
        (HALVING, name) for name in ("_halve", "double", "_distance", "_core", "folded")
    ],
    ("halving_doubling", "reduce_scatter"): [(HALVING, "folded_reduce_scatter"), (HALVING, "_halve")],
    ("halving_doubling", "all_gather"): [(HALVING, "folded_all_gather"), (HALVING, "double")],
    ("gloo_ring", "reduce_scatter"): [(GLOO, name) for name in ("_passed_on", "_pairs", "_reduce_scatter")],
    ("gloo_ring", "reduce"): [(GLOO, name) for name in ("_passed_on", "_pairs")],
    ("pat", "all_gather"): [(PAT, name) for name in (*OF_PAT, "_passed_on")],
    ("pat", "reduce_scatter"): [(PAT, name) for name in (*OF_PAT, "_reduced")],
    ("tree", "broadcast"): [(TREE, "_branches"), (TREE, "broadcast")],
    ("tree", "reduce"): [(TREE, "_branches"), (TREE, "reduce")],
    ("tree", "gather"): [(TREE, "_branches"), (TREE, "gather"), (ROOTED, "_parts")],
    ("tree", "scatter"): [(TREE, "_branches"), (TREE, "scatter"), (ROOTED, "_parts")],
}
"""Of the programs: where the functions are found that they are made of, and their names."""

SHIPPED = [own for own in (*ALGORITHMS, *NATIVE_ALGORITHMS) if (own.name, own.collective) in MADE_OF]
FEW, MANY = 1, 8
"""Mutants of each program that are tried, of at most 65; all take three minutes, and none is proved."""


def names(shipped: Algorithm) -> str:
    return f"{shipped.collective}-{shipped.name}"


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


def some_of(shipped: Algorithm, number: int) -> list[tuple[Any, str, str, Any]]:
    found = list(mutants(shipped))
    return random.Random(names(shipped)).sample(found, min(number, len(found)))


@pytest.mark.parametrize("shipped", SHIPPED, ids=names)
def test_no_program_with_a_slip_is_proved(shipped: Algorithm) -> None:
    judge(shipped, some_of(shipped, FEW))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("shipped", SHIPPED, ids=names)
def test_none_of_many_programs_with_a_slip_is_proved(shipped: Algorithm) -> None:
    judge(shipped, some_of(shipped, MANY))
