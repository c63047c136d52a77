from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from collectives.communicators.on_one_host import OnOneHost
from collectives.program.contracts import CONTRACTS


@given(st.integers(2**23, 2**45))
def test_large_buffers_are_reduced_in_segments_that_fit_in_a_cache(nbytes: int) -> None:
    segments = OnOneHost().select("all_reduce", nbytes).parameters["segments"]

    assert 2 <= segments <= 4096
    assert nbytes / segments < 2**23 or segments == 4096


@given(st.sampled_from(sorted(CONTRACTS)), st.integers(0, 2**23 - 1))
def test_others_are_carried_out_as_a_whole(collective: str, nbytes: int) -> None:
    chosen = OnOneHost().select(collective, nbytes)

    assert chosen.collective == collective
    assert "segments" not in chosen.parameters
