from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from collectives import verify
from collectives.algorithms.direct import direct


@given(world_size=st.integers(1, 20), segments=st.integers(1, 12))
def test_an_all_reduce_is_proved_for_any_number_of_segments(world_size: int, segments: int) -> None:
    proof = verify(direct.with_parameters(segments=segments), world_size)

    assert (proof.num_chunks, proof.cost_declared, proof.array_form) == (world_size * segments, True, True)
