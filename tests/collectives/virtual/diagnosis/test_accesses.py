"""Regions of storages: which bytes a tensor has, and which two have in common."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from collectives.virtual.diagnosis.accesses import overlap, region_of

_DIMENSIONS = st.lists(st.tuples(st.integers(1, 4), st.integers(0, 20)), max_size=3)


@st.composite
def _views(draw):
    """Draw a view, with or without gaps, of a storage of 256 numbers."""
    dimensions = draw(_DIMENSIONS)
    shape, strides = [length for length, _ in dimensions], [stride for _, stride in dimensions]
    return torch.empty(256).as_strided(shape, strides, draw(st.integers(0, 70)))


def _bytes_of(view: torch.Tensor) -> set[int]:
    places = torch.arange(256).as_strided(view.shape, view.stride(), view.storage_offset())
    return {4 * place + byte for place in places.flatten().tolist() for byte in range(4)}


@given(_views(), _views())
def test_two_views_overlap_where_they_have_bytes_in_common(one, other):
    regions = [region_of(view, 4 * view.storage_offset()) for view in (one, other)]

    assert overlap(*regions) == bool(_bytes_of(one) & _bytes_of(other))
    assert (regions[0].begin, regions[0].end - 1) == (min(_bytes_of(one)), max(_bytes_of(one)))


@given(st.integers(1, 2**20), st.integers(1, 64), st.integers(0, 64), st.integers(1, 64))
def test_columns_of_one_matrix_overlap_as_their_numbers_do(num_rows, width, begin, num_columns):
    matrix = torch.empty(num_rows, 256, device="meta")
    one = region_of(matrix[:, :width], 0)
    other = region_of(matrix[:, begin : begin + num_columns], 4 * begin)

    assert overlap(one, other) == (begin < width)
