from __future__ import annotations

import pytest

from collectives import NotSupportedError, resolve_algorithm, simulate, verify
from collectives.program import Send
from sim import Topology
from tests.collectives import reference


@pytest.mark.parametrize("exponent", range(10))
def test_swing_meets_the_bound_in_bytes_in_two_steps_per_power_of_two(exponent: int) -> None:
    proof = verify("swing", 2**exponent)

    assert proof.num_steps == 2 * exponent
    assert proof.max_bytes_sent_fraction == proof.min_bytes_sent_fraction


def test_peers_swing_to_and_fro_as_in_the_paper() -> None:
    steps = list(resolve_algorithm("swing").steps(0, 16))

    peers = [operation.peer for step in steps for operation in step if isinstance(operation, Send)]
    assert peers == [1, 16 - 1, 3, 16 - 5, 16 - 5, 3, 16 - 1, 1]


def test_a_run_by_the_independent_rules_reduces_everything_everywhere() -> None:
    programs = [list(resolve_algorithm("swing").steps(rank, 16)) for rank in range(16)]

    assert reference.fulfils(programs, reference.Setting("all_reduce", 16, 16))


@pytest.mark.parametrize(("world_size", "buffers"), [(8, 2.0), (16, 2.375), (32, 2.75), (64, 3.09375)])
def test_on_a_ring_of_links_it_costs_the_load_of_its_busiest_links(world_size: int, buffers: float) -> None:
    """The sum over steps of the largest load of a link, counted apart from this code."""
    topology = Topology.ring(num_ranks=world_size, bandwidth="1GB/s", latency="0s")

    run = simulate("swing", nbytes=world_size * 10**6, topology=topology)

    assert run.seconds == pytest.approx(buffers * world_size * 1e-3, rel=1e-12)


@pytest.mark.parametrize("world_size", [3, 6, 12, 100])
def test_other_world_sizes_are_refused_with_what_to_use(world_size: int) -> None:
    with pytest.raises(NotSupportedError, match=f"got {world_size} ranks; use ring or bucket"):
        verify("swing", world_size)
