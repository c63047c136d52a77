"""Proofs for every size of programs made of other programs, from the contracts of those."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any

import pytest

from collectives import ProgramError, resolve_algorithm, verify
from collectives.algorithms.shared.embedding import Group
from collectives.program import Algorithm, Step
from tests.collectives.proof.every_size.mutants import slips

z3 = pytest.importorskip("z3", reason="proofs for every size need z3")

from collectives.proof.every_size import NotProvedError, prove_every_size  # noqa: E402
from collectives.proof.every_size.linear import Linear  # noqa: E402
from collectives.proof.every_size.symbols import Assumptions, minimum  # noqa: E402

HIERARCHICAL = import_module("collectives.algorithms.hierarchical")
MADE_OF = [
    (HIERARCHICAL, "_inside"),
    (HIERARCHICAL, "_between"),
    (HIERARCHICAL, "embed"),
    (HIERARCHICAL._Column, "rank_of"),
    (Group, "rank_of"),
]
FEW = 3
"""Slips that are tried; all of them would take too long."""


def is_wrong(program: Algorithm) -> bool:
    """Return whether *program* is wrong for some number of ranks up to 16."""
    for world_size in range(2, 17):
        try:
            verify(program, world_size)
        except ProgramError:
            return True
    return False


def is_proved(program: Algorithm) -> bool:
    try:
        prove_every_size(program)
    except NotProvedError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_no_composed_program_with_a_slip_is_proved() -> None:
    own = replace(resolve_algorithm("hierarchical"), declared_cost=None)
    found = [
        (where, name, what, changed) for where, name in MADE_OF for what, changed in slips(vars(where)[name])
    ]
    for where, name, what, changed in random.Random(0).sample(found, FEW):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(where, name, changed)
            assert not (is_wrong(own) and is_proved(own)), f"proved, but wrong: {name}: {what}"


def test_a_part_that_is_given_the_wrong_chunks_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    embed = HIERARCHICAL.embed

    def from_the_first_chunk(*part: Any, first_chunk: int, **named: Any) -> Iterator[Step]:
        return embed(*part, first_chunk=0, **named)

    monkeypatch.setattr(HIERARCHICAL, "embed", from_the_first_chunk)
    with pytest.raises(NotProvedError, match="hierarchical, all_reduce, every size: "):
        prove_every_size(resolve_algorithm("hierarchical"))


def test_steps_that_are_too_many_from_nine_ranks_on_are_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    num_steps = HIERARCHICAL._num_steps

    def more_from_nine_on(part: Algorithm, world_size: int) -> Any:
        return num_steps(part, world_size) + minimum(world_size, 9) - minimum(world_size, 8)

    monkeypatch.setattr(HIERARCHICAL, "_num_steps", more_from_nine_on)
    verify(resolve_algorithm("hierarchical:ranks_per_node=4"), 16)
    with pytest.raises(NotProvedError, match="not proved: its declared number of steps is that of its parts"):
        prove_every_size(resolve_algorithm("hierarchical"))


def test_products_are_told_to_the_solver_as_they_are() -> None:
    place, size, share, chunk = z3.Ints("place size share chunk")
    bounds = [place >= 0, place < size, share >= 1, chunk >= place * share]
    facts = Assumptions(*bounds, products=True)
    inside = z3.Implies(chunk < (place + 1) * share, chunk < size * share)
    assert facts.imply(inside)
    assert not facts.imply(chunk < size * share)
    assert Linear().of([place < size]) == [place < size]
