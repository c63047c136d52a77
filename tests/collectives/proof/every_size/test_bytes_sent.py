"""Bytes that are declared, proved for every number of ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import pytest

from collectives import resolve_algorithm
from collectives.program import Cost

pytest.importorskip("z3", reason="proofs for every size need z3")

from collectives.proof.every_size import scope_of

COUNTED = [
    ("naive", "all_reduce"),  # one turn, that of the rank's own number
    ("ring", "all_gather"),  # every turn the same
    ("chain", "broadcast"),  # few chunks
    ("bruck", "all_gather"),  # a formula
    ("tree", "broadcast"),  # no more than one chunk in a turn
    ("direct", "gather"),
]


@pytest.mark.parametrize(("name", "collective"), COUNTED)
def test_the_bytes_of_the_busiest_rank_are_those_declared(name: str, collective: str) -> None:
    scope = scope_of(resolve_algorithm(name, collective))

    assert (scope.sizes, scope.with_bytes) == ("every size", True)


def too_few_from_72_ranks_on(world_size: int) -> Cost:
    return Cost(2 * (world_size - 1), Fraction(min(world_size - 1, 70)))


def too_many(world_size: int) -> Cost:
    return Cost(2 * (world_size - 1), Fraction(world_size))


@pytest.mark.parametrize("declared", [too_few_from_72_ranks_on, too_many])
def test_bytes_that_are_not_those_declared_are_not_proved(declared: Callable[[int], Cost]) -> None:
    scope = scope_of(replace(resolve_algorithm("naive"), declared_cost=declared))

    assert (scope.sizes, scope.with_bytes) == ("every size", False)
