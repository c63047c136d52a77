from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from collectives.synthesis.exchange import messages_of

FIRST_SCRATCH = 6
CHUNKS = st.integers(0, 11)


@settings(max_examples=50)
@given(st.dictionaries(CHUNKS, CHUNKS, min_size=1))
def test_messages_move_each_chunk_once_and_lie_in_the_buffer_or_in_scratch(moved: dict[int, int]) -> None:
    messages = messages_of({(0, 1): list(moved.items())}, FIRST_SCRATCH)

    told = [
        (own.source_chunk + place, own.chunk + place) for own in messages for place in range(own.num_chunks)
    ]
    assert sorted(told) == sorted(moved.items())
    for own in messages:
        for first in (own.source_chunk, own.chunk):
            assert (first < FIRST_SCRATCH) == (first + own.num_chunks <= FIRST_SCRATCH)
