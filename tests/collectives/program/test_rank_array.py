"""All ranks as one value compute what a plain array of them does."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives.errors import ProgramError
from collectives.program.rank_array import Deferred, RankArray

OPERATORS = ["add", "sub", "mul", "floordiv", "mod", "and_", "or_", "xor", "lt", "le", "gt", "ge", "eq", "ne"]


@given(
    num_ranks=st.integers(1, 20),
    operations=st.lists(
        st.tuples(st.sampled_from(["add", "sub", "mod"]), st.integers(-30, 30), st.booleans()), max_size=6
    ),
    last=st.sampled_from(OPERATORS),
    operand=st.integers(1, 9),
)
def test_any_arithmetic_gives_what_it_gives_on_an_array(
    num_ranks: int, operations: list[tuple[str, int, bool]], last: str, operand: int
) -> None:
    formula: Any = RankArray(num_ranks)
    plain: Any = np.arange(num_ranks)
    for name, number, of_all in operations:
        if name == "mod":
            number = num_ranks if of_all else abs(number) + 1
        formula, plain = getattr(operator, name)(formula, number), getattr(operator, name)(plain, number)

    apply = getattr(operator, last)
    assert np.array_equal(np.asarray(formula), plain)
    assert np.array_equal(np.asarray(apply(formula, operand)), apply(plain, operand))
    if last not in ("mod", "floordiv"):  # a rank may be 0
        assert np.array_equal(np.asarray(apply(operand, formula)), apply(operand, plain))


@given(
    num_ranks=st.integers(1, 30),
    turn=st.integers(-40, 40),
    offset=st.integers(-3, 3),
    limit=st.integers(-5, 40),
    length=st.integers(0, 40),
)
def test_ranks_of_some_values_are_found_by_formula(
    num_ranks: int, turn: int, offset: int, limit: int, length: int
) -> None:
    formula: Any = (RankArray(num_ranks) + turn) % num_ranks + offset
    values = np.asarray(formula)

    ranks = formula.ranks_in(range(limit, limit + length))

    assert [formula.at(rank) for rank in range(num_ranks)] == values.tolist()
    assert formula.highest == values.max()
    if ranks is not None:
        assert sorted(ranks) == np.flatnonzero((values >= limit) & (values < limit + length)).tolist()


def test_it_mixes_with_arrays_and_indexes_tables() -> None:
    ranks: Any = RankArray(4)
    table = np.array([3, 1, 2, 0])

    assert (table[ranks] == table).all()
    assert (table + ranks == table + np.arange(4)).all()
    assert (np.where(ranks > 1, ranks, table) == [3, 1, 2, 3]).all()
    assert (np.minimum(ranks, 2) == [0, 1, 2, 2]).all()
    assert (ranks[table] == table).all()
    assert ranks.max() == 3


def test_a_program_that_branches_on_it_is_told_so() -> None:
    with pytest.raises(ProgramError, match="must not branch on rank"):
        bool(RankArray(3))


def test_what_is_deferred_is_worked_out_once_and_only_if_asked_for() -> None:
    asked: list[int] = []
    deferred: Any = Deferred(lambda: asked.append(1) or np.arange(3))

    assert asked == []
    assert (deferred + 1 == [1, 2, 3]).all()
    assert (2 - deferred).tolist() == [2, 1, 0]
    assert np.asarray(deferred)[deferred].tolist() == [0, 1, 2]
    assert asked == [1]
