"""Divisions of tensors over ranks."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from collectives.virtual.folding.divisions import Flat, Rows, Shares


@given(st.integers(0, 60), st.integers(1, 12))
def test_rows_are_divided_as_torch_divides_them(size: int, parts: int) -> None:
    chunks = [len(chunk) for chunk in torch.zeros(size).chunk(parts)] if size else []

    lengths = [Rows(size, parts).part(number) for number in range(parts)]

    assert lengths == chunks + [0] * (parts - len(chunks))
    assert Rows(size, parts).is_even == (len(set(lengths)) == 1)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(1, 5))
def test_pieces_of_a_flat_tensor_are_those_that_its_chunks_hold(sizes: list[int], parts: int) -> None:
    length = -(-sum(sizes) // parts)
    owners = [number for number, size in enumerate(sizes) for _ in range(size)]

    flat = Flat(tuple(sizes), parts, length)

    for part in range(parts):
        held = owners[part * length : (part + 1) * length]
        assert flat.part(part) == tuple(held.count(owner) for owner in dict.fromkeys(held))


def test_shares_are_even_where_all_ranks_have_tensors_of_the_same_sizes() -> None:
    assert Shares(((4, 2), (4, 2))).is_even
    assert not Shares(((4, 2), (2, 4))).is_even
