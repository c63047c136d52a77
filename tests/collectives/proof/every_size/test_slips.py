"""Programs with a slip, in their source or in that of functions that they are made of: none is proved."""

import inspect
import random
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import pytest

from collectives import Algorithm, NotSupportedError, ProgramError, verify
from collectives.algorithms import ALGORITHMS, NATIVE_ALGORITHMS
from collectives.algorithms.shared.embedding import Group
from collectives.algorithms.shared.power_of_two import Fold
from tests.collectives.proof.every_size.slips import slips

z3 = pytest.importorskip("z3", reason="proofs for every size need z3")

from collectives.proof.every_size import NotProvedError, scope_of  # noqa: E402

MODULES = (
    "bruck", "halving_doubling", "recursive_doubling", "tree", "shared.rooted_tree", "gloo.ring",
    "pat", "hierarchical",
)  # fmt: skip
BRUCK, HALVING, RECURSIVE, TREE, ROOTED, GLOO, PAT, HIERARCHICAL = (
    import_module(f"collectives.algorithms.{name}") for name in MODULES
)
OF_FOLD = ("to_host", "to_leaf", "among_hosts", "first_chunk", "core_rank", "is_leaf", "is_host")
OF_PAT = (
    "_aggregating", "_visiting", "_stored", "_num_parts", "_block", "_place", "_displacement", "_arriving",
)  # fmt: skip
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
    ("hierarchical", "all_reduce"): [
        *((HIERARCHICAL, name) for name in ("_inside", "_between", "embed")),
        (HIERARCHICAL._Column, "rank_of"),
        (Group, "rank_of"),
    ],
}
"""Of the programs: where the functions are found that they are made of, and their names."""

BY_THEMSELVES = {"bruck", "chain", "direct", "double_binary_tree", "naive", "one_shot", "ring"}
"""Programs whose own source is all that they are made of, or most of it."""

ALL = (*ALGORITHMS, *NATIVE_ALGORITHMS)
MARKS = {
    "hierarchical": pytest.mark.slow,
    **dict.fromkeys(("pat", "double_binary_tree", "halving_doubling"), pytest.mark.costly),
}
SHIPPED = [
    pytest.param(own, id=f"{own.collective}-{own.name}", marks=MARKS.get(own.name, ()))
    for own in ALL
    if own.name in BY_THEMSELVES or (own.name, own.collective) in MADE_OF
]
MANY = 8
"""Mutants of a program made of functions that are tried of at most 65, which all take three minutes."""


@dataclass(frozen=True)
class Mutant:
    """What a program is, or what stands in it at *where* under *name*, which says *what* now."""

    program: Algorithm
    where: Any
    name: str
    what: str
    changed: Any


def mutants(shipped: Algorithm) -> Iterator[Mutant]:
    """Yield *shipped* with each slip."""
    if shipped.name in BY_THEMSELVES:
        for what, program in slips(inspect.unwrap(shipped.program)):
            mutant = replace(shipped, name="mutant", program=program, declared_cost=None)
            yield Mutant(mutant, None, str(shipped), what, None)
    named = replace(shipped, declared_cost=None)
    for where, name in MADE_OF.get((shipped.name, shipped.collective), ()):
        found = vars(where)[name]
        is_property = isinstance(found, property)
        for what, changed in slips(found.fget if is_property else found):
            yield Mutant(named, where, name, what, property(changed) if is_property else changed)


def is_wrong(program: Algorithm, sizes: Iterable[int]) -> bool:
    """Return whether *program* is wrong, or refuses, for some number of ranks in *sizes*."""
    for world_size in sizes:
        try:
            verify(program, world_size)
        except (ProgramError, NotSupportedError):
            return True
    return False


def judge(mutant: Mutant) -> None:
    """See that *mutant* is not proved for a number of ranks up to 16 for which it is wrong."""
    with pytest.MonkeyPatch.context() as patch:
        if mutant.where is not None:
            patch.setattr(mutant.where, mutant.name, mutant.changed)
        proved_for = ()
        if is_wrong(mutant.program, range(2, 17)):
            with suppress(NotProvedError):
                is_for_all = scope_of(mutant.program).sizes == "every size"
                proved_for = range(2, 17) if is_for_all else (2, 4, 8, 16)
        assert not is_wrong(mutant.program, proved_for), f"proved, but wrong: {mutant.name}: {mutant.what}"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("at_length", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("shipped", SHIPPED)
def test_no_program_with_a_slip_is_proved(shipped, at_length):
    found = list(mutants(shipped))
    if shipped.name in BY_THEMSELVES:
        number = len(found) if at_length else 3
    else:
        number = MANY if at_length else 1

    chosen = random.Random(f"{shipped.collective}-{shipped.name}").sample(found, min(number, len(found)))
    for mutant in chosen:
        judge(mutant)
