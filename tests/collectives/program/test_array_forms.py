"""Programs of all ranks at once, and how they are told apart."""

import operator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from collectives import (
    NotExactError,
    ProgramError,
    algorithm,
    resolve_algorithm,
)
from collectives.algorithms import ALGORITHMS
from collectives.program.channels import in_channels
from collectives.program.chunking import Chunking
from collectives.program.rank_array import RankArray
from collectives.proof import estimate_work
from collectives.timing.rows.pattern import patterned_rows
from collectives.timing.rows.repeated_rows import repeated_rows
from collectives.timing.rows.sizes import of_each


def test_the_work_of_a_proof_grows_with_operations_and_with_chunks():
    # Each of 64 ranks takes 126 steps of 2 operations, and holds 64 chunks.
    expected = 64 * (126 * 3 + (126 * 2 + 64) / 8)
    assert estimate_work(resolve_algorithm("ring"), 64) == pytest.approx(expected, rel=0.01)
    assert estimate_work(resolve_algorithm("bruck", "all_to_all"), 64) > estimate_work(
        resolve_algorithm("bruck", "all_gather"), 64
    )


def test_a_program_that_fails_is_left_to_the_proof_to_report():
    @algorithm()
    def fails(rank: int, world_size: int) -> Any:
        yield ()
        raise IndexError

    assert estimate_work(fails, 2) < 10


@given(
    shipped=st.sampled_from(ALGORITHMS),
    channels=st.integers(1, 3),
    num_ranks=st.integers(1, 10),
    count=st.integers(0, 60),
)
def test_rows_of_one_kind_have_the_messages_of_one_and_their_sizes(shipped, channels, num_ranks, count):
    algorithm = in_channels(shipped, channels).with_parameters(ranks_per_node=2)
    chunking = Chunking.of(algorithm, num_ranks, count, 4)
    try:
        rows = list(patterned_rows(algorithm, num_ranks))
        known = repeated_rows(algorithm, num_ranks)
    except NotExactError:
        return
    if known is None:
        return

    assert sum(kind.count for kind in known) == len(rows)
    of_rows = iter(rows)
    for kind in known:
        for _ in range(kind.count):
            row, pattern = next(of_rows)
            assert np.array_equal(pattern.source, kind.pattern.source)
            assert np.array_equal(pattern.destination, kind.pattern.destination)
            if kind.has_same_sizes(chunking):
                sizes = [
                    of_each(own.nbytes(one, chunking), len(own.source)).tolist()
                    for one, own in [(row, pattern), (kind.row, kind.pattern)]
                ]
                assert sizes[0] == sizes[1]


OPERATORS = ["add", "sub", "mul", "floordiv", "mod", "and_", "or_", "xor", "lt", "le", "gt", "ge", "eq", "ne"]


@given(
    num_ranks=st.integers(1, 20),
    operations=st.lists(
        st.tuples(st.sampled_from(["add", "sub", "mod"]), st.integers(-30, 30), st.booleans()), max_size=6
    ),
    last=st.sampled_from(OPERATORS),
    operand=st.integers(1, 9),
)
def test_any_arithmetic_gives_what_it_gives_on_an_array(num_ranks, operations, last, operand):
    formula = RankArray(num_ranks)
    plain = np.arange(num_ranks)
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
def test_ranks_of_some_values_are_found_by_formula(num_ranks, turn, offset, limit, length):
    formula = (RankArray(num_ranks) + turn) % num_ranks + offset
    values = np.asarray(formula)

    ranks = formula.ranks_in(range(limit, limit + length))

    assert [formula.at(rank) for rank in range(num_ranks)] == values.tolist()
    assert formula.highest == values.max()
    if ranks is not None:
        assert sorted(ranks) == np.flatnonzero((values >= limit) & (values < limit + length)).tolist()


def test_it_mixes_with_arrays_and_indexes_tables():
    ranks = RankArray(4)
    table = np.array([3, 1, 2, 0])

    assert (table[ranks] == table).all()
    assert (table + ranks == table + np.arange(4)).all()
    assert (np.where(ranks > 1, ranks, table) == [3, 1, 2, 3]).all()
    assert (np.minimum(ranks, 2) == [0, 1, 2, 2]).all()
    assert (ranks[table] == table).all()
    assert ranks.max() == 3
    with pytest.raises(ProgramError, match="must not branch on rank"):
        bool(ranks)


@given(count=st.integers(0, 200), num_chunks=st.integers(1, 20), data=st.data())
def test_chunks_are_those_of_torch_chunk_with_empty_ones_at_the_end_and_then_come_those_of_scratch(
    count, num_chunks, data
):
    chunking = Chunking(count, num_chunks, itemsize=4)
    spans = [chunking.span(chunk) for chunk in range(num_chunks)]
    expected = [len(part) for part in torch.arange(count).chunk(num_chunks)] if count else []

    assert [stop - start for start, stop in spans if stop > start] == expected
    assert [start for start, _ in spans] == sorted(start for start, _ in spans)
    assert sum(chunking.nbytes(chunk) for chunk in range(num_chunks)) == 4 * count
    first = data.draw(st.integers(0, num_chunks - 1))
    length = data.draw(st.integers(1, num_chunks - first))
    assert chunking.span(first, length) == (spans[first][0], spans[first + length - 1][1])
    place = data.draw(st.integers(0, 60))
    assert chunking.span(num_chunks)[0] == count
    assert chunking.span(place + 1)[0] == chunking.span(place)[1]
    assert chunking.nbytes(num_chunks + place) == chunking.nbytes(place % num_chunks)


@given(part=st.integers(0, 50), num_parts=st.integers(1, 6), per_part=st.integers(1, 7))
def test_each_of_several_equal_parts_is_divided_by_itself(part, num_parts, per_part):
    whole = Chunking(part * num_parts, per_part * num_parts, num_parts=num_parts)
    alone = Chunking(part, per_part)

    for chunk in range(whole.num_chunks):
        number, place = divmod(chunk, per_part)
        start, stop = alone.span(place)
        assert whole.span(chunk) == (number * part + start, number * part + stop)
    assert list(whole.starts_in_bytes(np.arange(whole.num_chunks))) == [
        whole.span(chunk)[0] for chunk in range(whole.num_chunks)
    ]
