from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives import resolve_algorithm, simulate, verify
from sim import Topology


@pytest.mark.parametrize("collective", ["all_reduce", "broadcast", "reduce"])
@given(world_size=st.integers(1, 20), segments=st.integers(1, 12), data=st.data())
def test_a_chain_is_proved_for_any_number_of_segments_and_any_root(
    collective: str, world_size: int, segments: int, data: st.DataObject
) -> None:
    chain = resolve_algorithm("chain", collective).with_parameters(segments=segments)

    proof = verify(chain, world_size, root=data.draw(st.integers(0, world_size - 1)))

    assert (proof.num_chunks, proof.cost_declared, proof.array_form) == (segments, True, True)


@pytest.mark.parametrize("collective", ["broadcast", "reduce"])
@given(
    world_size=st.integers(2, 12),
    segments=st.integers(1, 8),
    segment=st.integers(1, 10**6),
    engine=st.sampled_from(["makespan", "events"]),
)
def test_a_chain_on_a_switch_takes_exactly_its_closed_form(
    collective: str, world_size: int, segments: int, segment: int, engine: Any
) -> None:
    chain = resolve_algorithm("chain", collective).with_parameters(segments=segments)
    topology = Topology.switch(num_ranks=world_size, bandwidth=10**9, latency="2us")

    run = simulate(chain, nbytes=segments * segment, topology=topology, engine=engine)

    assert run.time_ps == (world_size - 2 + segments) * (4_000_000 + 1000 * segment)


def test_both_directions_of_a_ring_of_links_are_busy_at_once() -> None:
    chain = resolve_algorithm("chain").with_parameters(segments=100)
    topology = Topology.ring(num_ranks=4, bandwidth=10**9, latency="0s")

    run = simulate(chain, nbytes=100 * 1000, topology=topology)

    assert (run.engine, run.time_ps) == ("makespan", (2 * 3 + 99) * 1000 * 1000)
