from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from collectives.program.chunking import Chunking


@given(count=st.integers(0, 200), num_chunks=st.integers(1, 20))
def test_chunks_are_those_of_torch_chunk_with_empty_ones_at_the_end(count: int, num_chunks: int) -> None:
    chunking = Chunking(count, num_chunks, itemsize=4)
    spans = [chunking.span(chunk) for chunk in range(num_chunks)]
    expected = [len(part) for part in torch.arange(count).chunk(num_chunks)] if count else []

    assert [stop - start for start, stop in spans if stop > start] == expected
    assert [start for start, _ in spans] == sorted(start for start, _ in spans)
    assert sum(chunking.nbytes(chunk) for chunk in range(num_chunks)) == 4 * count


@given(count=st.integers(0, 200), num_chunks=st.integers(1, 20), data=st.data())
def test_a_range_of_chunks_is_their_concatenation(count: int, num_chunks: int, data: st.DataObject) -> None:
    chunking = Chunking(count, num_chunks)
    first = data.draw(st.integers(0, num_chunks - 1))
    length = data.draw(st.integers(1, num_chunks - first))

    assert chunking.span(first, length) == (chunking.span(first)[0], chunking.span(first + length - 1)[1])


@given(count=st.integers(0, 200), num_chunks=st.integers(1, 20), place=st.integers(0, 60))
def test_scratch_chunks_follow_the_buffer_and_are_as_long_as_its_chunks(
    count: int, num_chunks: int, place: int
) -> None:
    chunking = Chunking(count, num_chunks, itemsize=2)

    assert chunking.span(num_chunks)[0] == count
    assert chunking.span(place + 1)[0] == chunking.span(place)[1]
    assert chunking.nbytes(num_chunks + place) == chunking.nbytes(place % num_chunks)


@given(part=st.integers(0, 50), num_parts=st.integers(1, 6), per_part=st.integers(1, 7))
def test_each_of_several_equal_parts_is_divided_by_itself(part: int, num_parts: int, per_part: int) -> None:
    whole = Chunking(part * num_parts, per_part * num_parts, num_parts=num_parts)
    alone = Chunking(part, per_part)

    for chunk in range(whole.num_chunks):
        number, place = divmod(chunk, per_part)
        start, stop = alone.span(place)
        assert whole.span(chunk) == (number * part + start, number * part + stop)
    assert list(whole.starts_in_bytes(np.arange(whole.num_chunks))) == [
        whole.span(chunk)[0] for chunk in range(whole.num_chunks)
    ]
